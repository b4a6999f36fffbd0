//! Notices of restarts, in both directions.
