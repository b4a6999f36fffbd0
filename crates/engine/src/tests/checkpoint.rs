//! Checkpoints: what the store holds afterwards, and what a crash in the middle leaves.
