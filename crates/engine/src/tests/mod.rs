//! Tests of the whole engine, over memory.

mod bounded;
mod bypass;
mod checkpoint;
mod dedupe;
mod earlier;
mod edges;
mod fsck;
mod intake;
mod lineage;
mod loss;
mod moves;
mod neighbours;
mod opening;
mod passing;
mod presence;
mod reclaim;
mod review;
mod room;
mod survival;
