//! Which object of the engine is which object of the model.

use std::collections::BTreeMap;

use tarn_base::ids::Position;
use tarn_vfs::Node;
use tarn_vfs::op::{Op, Outcome, Slot, Slots};

use crate::failure::{Checked, Failure};

/// What slots stand for, on both sides, and who is whose twin.
#[derive(Clone, Debug, Default)]
pub struct Pairs {
    pub engine: Slots,
    pub model: Slots,
    /// The log's last position when the slot was filled.
    noted: BTreeMap<Slot, Position>,
    /// By the model's object; with the least position at which it was seen.
    twins: BTreeMap<Node, (Node, Position)>,
}

impl Pairs {
    /// A volume's root, which is there for ever.
    pub fn root(&mut self, slot: Slot, engine: Node, model: Node) {
        self.engine.insert(slot, engine);
        self.model.insert(slot, model);
        self.noted.insert(slot, Position::ZERO);
        self.twins.insert(model, (engine, Position::ZERO));
    }

    /// What an operation found or made, on both sides, at `at`.
    pub fn note(&mut self, op: &Op, engine: &Outcome, model: &Outcome, at: Position) -> Checked {
        let (Some(found), Some(meant)) = (engine.node, model.node) else { return Ok(()) };
        let (twin, noted) = self.twins.entry(meant).or_insert((found, at));
        // Who made it may be answered after who looked it up later.
        *noted = at.min(*noted);
        let twin = *twin;
        if twin != found {
            return Err(Failure::new(
                "identity",
                format!("{op:?} gives {twin:?}, as before"),
                format!("{found:?}, which is another object"),
            ));
        }
        if let Some(slot) = op.target() {
            op.note(engine, &mut self.engine);
            op.note(model, &mut self.model);
            self.noted.insert(slot, at);
        }
        Ok(())
    }

    /// Whether nothing said so far speaks against the two being the same object.
    pub fn agree(&self, engine: Option<Node>, model: Option<Node>) -> bool {
        let (Some(engine), Some(model)) = (engine, model) else { return true };
        match self.twin(model) {
            Some(twin) => twin == engine,
            None => self.twins.values().all(|(twin, _)| *twin != engine),
        }
    }

    /// The engine's object that is this one of the model.
    pub fn twin(&self, model: Node) -> Option<Node> {
        self.twins.get(&model).map(|(engine, _)| *engine)
    }

    /// The model's object that is this one of the engine.
    pub fn meant(&self, engine: Node) -> Option<Node> {
        self.twins.iter().find(|(_, (twin, _))| *twin == engine).map(|(model, _)| *model)
    }

    /// Forgets what was found or made after `at`; gives the slots, and the twins (model's, engine's).
    pub fn forget_after(&mut self, at: Position) -> (Vec<Slot>, Vec<(Node, Node)>) {
        let slots: Vec<Slot> = self.noted.iter().filter(|(_, noted)| **noted > at).map(|(slot, _)| *slot).collect();
        for slot in &slots {
            self.noted.remove(slot);
            self.engine.remove(slot);
            self.model.remove(slot);
        }
        let late = self.twins.extract_if(.., |_, (_, noted)| *noted > at);
        let twins = late.map(|(model, (engine, _))| (model, engine)).collect();
        (slots, twins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_base::ids::{Ino, VolumeId};
    use tarn_vfs::op::Seen;

    #[test]
    fn what_was_made_first_stays_though_it_was_found_before_that_was_answered() {
        let node = |generation| Node { volume: VolumeId(1), epoch: 0, ino: Ino(4), generation };
        let found =
            |node| Outcome { seen: Seen::Refused(tarn_vfs::Errno::Io), node: Some(node), position: Position::ZERO };
        let lookup = |into| Op::Lookup { dir: Slot(0), name: "name".into(), into };
        let mut pairs = Pairs::default();
        pairs.note(&lookup(Slot(2)), &found(node(10)), &found(node(20)), Position(11)).unwrap();
        pairs.note(&lookup(Slot(1)), &found(node(10)), &found(node(20)), Position(4)).unwrap();
        let (slots, twins) = pairs.forget_after(Position(7));
        assert_eq!((slots, twins), (vec![Slot(2)], vec![]));
        assert_eq!(pairs.twin(node(20)), Some(node(10)));
    }
}
