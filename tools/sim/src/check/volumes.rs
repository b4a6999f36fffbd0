//! What administrators have done to volumes is there after every crash, and nothing else is.

use std::collections::BTreeMap;

use tarn_base::ids::Position;
use tarn_engine::Engine;
use tarn_vfs::VolumeSettings;

use crate::failure::{Checked, Failure};

/// Settings by name, and whether the volume is deleted.
pub type Volumes = BTreeMap<String, (VolumeSettings, bool)>;

/// What the volumes were from some change on.
#[derive(Clone, Debug)]
struct State {
    volumes: Volumes,
    /// The log's last position before the change was asked for, and after it was answered.
    asked: Position,
    answered: Option<Position>,
}

/// All that was ever asked for and not lost.
#[derive(Clone, Debug, Default)]
pub struct History(Vec<State>);

impl History {
    /// A change is asked for, which leads to `volumes`.
    pub fn ask(&mut self, volumes: Volumes, asked: Position) {
        self.0.push(State { volumes, asked, answered: None });
    }

    /// The change asked for last is done, and everything up to `durable` on the medium. A change that was refused may
    /// come out either way.
    pub fn done(&mut self, durable: Position) {
        if let Some(last) = self.0.last_mut() {
            last.answered = Some(durable);
        }
    }

    /// Holds what was recovered up to `recovered` against it; the rest never was.
    pub fn check(&mut self, engine: &Engine, recovered: Position) -> Checked {
        let is = volumes(engine);
        let may_be = |index: usize| {
            let lost_next = match self.0.get(index + 1) {
                Some(next) => next.answered.is_none_or(|answered| answered > recovered),
                None => true,
            };
            self.0[index].asked <= recovered && lost_next
        };
        let possible: Vec<usize> = (0..self.0.len()).filter(|index| may_be(*index)).collect();
        match possible.iter().rev().find(|index| self.0[**index].volumes == is) {
            Some(index) => {
                self.0.truncate(index + 1);
                if let Some(last) = self.0.last_mut() {
                    last.answered = Some(recovered.min(last.answered.unwrap_or(recovered)));
                }
                Ok(())
            }
            None => {
                let should: Vec<_> = possible.iter().map(|index| &self.0[*index].volumes).collect();
                Err(Failure::new("volumes", format!("at {recovered} one of {should:#?}"), format!("{is:#?}")))
            }
        }
    }
}

/// The volumes as they are.
pub fn volumes(engine: &Engine) -> Volumes {
    let all = engine.volume_list().into_iter();
    all.map(|volume| (volume.name, (volume.settings, volume.deleted.is_some()))).collect()
}
