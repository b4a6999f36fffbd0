//! What SlateDB's errors mean to the engine.
//!
//! - Fencing is told apart from everything else, wherever it shows.
//! - A commit that failed otherwise is [`MetaError::Unknown`], or [`MetaError::Full`], which says why: its manifest may
//!   have been written.
//! - What was taken away, so that an earlier state would be read, is [`MetaError::Gone`].
//! - Damage names the object it was found in, when our own store found it.

use std::error::Error;

use slatedb::{CloseReason, ErrorKind};
use tarn_store::StoreError;
use tarn_store::sequence::Missed;

use crate::contract::{MetaError, MetaResult};

/// How SlateDB says that an object which it numbers is there already.
const VERSION_EXISTS: &str = "version already exists";
/// How SlateDB says that its clock is behind what it has written; the time that it must not be before follows.
const CLOCK_BEHIND: &str = "must be monotonic. last_tick=`";

/// Milliseconds since 1970 that the clock must have reached, if that is what is wrong. SlateDB tells it in words only.
pub fn clock_behind(error: &MetaError) -> Option<i64> {
    let text = error.to_string();
    let (_, after) = text.split_once(CLOCK_BEHIND)?;
    after.split('`').next()?.parse().ok()
}

pub fn of_opening(error: &slatedb::Error) -> MetaError {
    of_reading(error)
}

pub fn of_commit(error: &slatedb::Error) -> MetaError {
    match of_reading(error) {
        told @ (MetaError::Fenced(_) | MetaError::Full(_)) => told,
        MetaError::Damaged(why) | MetaError::Gone(why) | MetaError::Unavailable(why) | MetaError::Unknown(why) => {
            MetaError::Unknown(why)
        }
    }
}

/// Being closed, or fenced, already is being closed.
pub fn of_closing(error: &slatedb::Error) -> MetaResult<()> {
    match error.kind() {
        ErrorKind::Closed(_) => Ok(()),
        _ => Err(of_reading(error)),
    }
}

pub fn of_reading(error: &slatedb::Error) -> MetaError {
    let why = describe(error);
    if let ErrorKind::Closed(CloseReason::Fenced) = error.kind() {
        return MetaError::Fenced(why);
    }
    if let Some(missed) = cause::<Missed>(error) {
        return MetaError::Gone(missed.to_string());
    }
    match cause::<StoreError>(error) {
        Some(StoreError::Damaged(..) | StoreError::NotFound(_) | StoreError::Range(..)) => MetaError::Damaged(why),
        Some(StoreError::Full(_)) => MetaError::Full(why),
        Some(_) => MetaError::Unavailable(why),
        // A first manifest whose reply was lost is met again when it is retried: nothing is damaged.
        None if why.contains(VERSION_EXISTS) => MetaError::Unavailable(why),
        None if error.kind() == ErrorKind::Data => MetaError::Damaged(why),
        None => MetaError::Unavailable(why),
    }
}

/// An error of our own among the causes.
fn cause<T: Error + 'static>(error: &slatedb::Error) -> Option<&T> {
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // An IO error hides the error it was made of.
        let hidden = error.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        cause = match hidden {
            Some(hidden) => Some(hidden),
            None => error.source(),
        };
    }
    None
}

fn describe(error: &slatedb::Error) -> String {
    match cause::<StoreError>(error) {
        Some(found) => found.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_to_be_reached_is_read_from_the_words() {
        let text = "Invalid error: invalid clock tick, must be monotonic. last_tick=`1999996342365`, next_tick=`1`";
        assert_eq!(clock_behind(&MetaError::Unknown(text.to_owned())), Some(1_999_996_342_365));
        assert_eq!(clock_behind(&MetaError::Unavailable("away".to_owned())), None);
    }
}
