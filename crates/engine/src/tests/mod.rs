//! Tests of the whole engine, over memory.

mod checkpoint;
mod fsck;
mod opening;
mod reclaim;
mod review;
mod survival;
