//! Outcomes that are remembered, so that a repeated call gets the first one again.
//!
//! - The last [`OUTCOMES_MAX`] per client are kept.
//! - "Try later" is not an outcome: nothing happened.

use std::collections::{BTreeMap, VecDeque};

use crate::answer::Answer;
use crate::error::{Errno, Failure};
use crate::types::{ClientId, Effect, LockOutcome, OnceToken};

/// Outcomes kept per client (engine rule 9).
pub const OUTCOMES_MAX: usize = 1024;

/// The value of any operation that may carry a token.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Effect(Effect),
    Lock(LockOutcome),
    Flag(bool),
    Nothing,
}

/// A value that can be remembered.
pub(super) trait Remembered: Sized {
    fn into_value(self) -> Value;
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! remembered {
    ($kind:ty, $variant:ident) => {
        impl Remembered for $kind {
            fn into_value(self) -> Value {
                Value::$variant(self)
            }
            fn from_value(value: Value) -> Option<Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }
        }
    };
}

remembered!(Effect, Effect);
remembered!(LockOutcome, Lock);
remembered!(bool, Flag);

impl Remembered for () {
    fn into_value(self) -> Value {
        Value::Nothing
    }
    fn from_value(value: Value) -> Option<()> {
        matches!(value, Value::Nothing).then_some(())
    }
}

/// A call and what came of it.
type Past = (OnceToken, Result<Value, Failure>);

#[derive(Clone, Debug, Default)]
pub(super) struct Outcomes {
    /// Oldest first.
    clients: BTreeMap<ClientId, VecDeque<Past>>,
}

impl Outcomes {
    /// What came of this call before, if it was made before.
    pub fn recall<T: Remembered>(&self, token: OnceToken) -> Option<Result<T, Failure>> {
        let outcomes = self.clients.get(&token.client)?;
        match &outcomes.iter().rev().find(|(old, _)| *old == token)?.1 {
            Ok(value) => T::from_value(value.clone()).map(Ok),
            Err(failure) => Some(Err(failure.clone())),
        }
    }

    pub fn remember<T: Remembered + Clone>(&mut self, token: OnceToken, result: &Result<T, Failure>) {
        if matches!(result, Err(failure) if failure.errno == Errno::TryLater) {
            return;
        }
        let outcomes = self.clients.entry(token.client).or_default();
        // The number stands for another call now.
        outcomes.retain(|(old, _)| old.number != token.number);
        if outcomes.len() == OUTCOMES_MAX {
            outcomes.pop_front();
        }
        outcomes.push_back((token, result.clone().map(Remembered::into_value)));
    }
}

/// The model's answer is always here, and may leave at once.
pub(super) fn answer<T>(result: Result<T, Failure>) -> Answer<T> {
    match result {
        Ok(value) => Answer::ok(value),
        Err(failure) => Answer::refuse(failure),
    }
}
