//! What the log holds and the object store does not yet: changed keys and dirty data, in generations.
//!
//! - The stack is one open generation and any number of closed ones, newest first (engine rule 15).
//! - A reader takes stack and store view as one value, [`Stack`]; a generation leaves it in the same exchange
//!   that brings the view containing it.
//! - A closed generation never changes; but its data may move in memory.
//! - Dirty data of an older map generation under a cut does not count; the reader judges by the map.

mod filter;
mod generation;
mod record;
mod span;
mod stack;

pub use generation::{Closed, DataKey, Generation, OverlayValue};
pub use record::{DirtyRecord, Extent, Source};
pub use span::Span;
pub use stack::{Load, Stack, StackCell};
