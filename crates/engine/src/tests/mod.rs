//! Tests of the whole engine, over memory.

mod checkpoint;
mod opening;
mod survival;
