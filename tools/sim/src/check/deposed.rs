//! An owner that has seen another one's claim answers nothing any more.

use tarn_vfs::{Attr, Caller, Errno, FileSystem, Node, Reply};

use crate::failure::{Checked, Failure};

pub async fn check(former: &dyn FileSystem, root: Node) -> Checked {
    match former.getattr(&Caller::root(), root).await {
        Err(done) if done.value.errno == Errno::TryLater => Ok(()),
        other => {
            let found = other.map(|done| done.value).map_err(|done| done.value.errno);
            Err(Failure::new(
                "deposed",
                "the former owner of a store that was taken answers nothing",
                format!("{found:?}"),
            ))
        }
    }
}

/// What a client hears that asked a machine which stood still while its store was taken; `None`: nothing.
pub fn answered(heard: Option<Reply<Attr>>) -> Checked {
    match heard {
        Some(Ok(done)) => Err(Failure::new(
            "deposed",
            "who stood still while its store was taken answers nothing",
            format!("{:?}", done.value),
        )),
        _ => Ok(()),
    }
}
