//! A reply leaves after what it shows is durable, and nothing that a reply has shown is missing afterwards.

use tarn_base::ids::Position;

use crate::failure::{Checked, Failure};

const NAME: &str = "promise";

/// A reply is about to leave: everything up to `required` is on the medium.
pub fn leaves(required: Position, durable: Position) -> Checked {
    if required <= durable {
        return Ok(());
    }
    Err(Failure::new(
        NAME,
        format!("a reply that shows {required} waits until it is durable"),
        format!("it leaves with {durable} durable"),
    ))
}

/// `recovered` holds everything up to `promised`.
pub fn kept(promised: Position, recovered: Position) -> Checked {
    if promised <= recovered {
        return Ok(());
    }
    Err(Failure::new(
        NAME,
        format!("everything up to {promised}, which was acknowledged"),
        format!("recovered up to {recovered}"),
    ))
}
