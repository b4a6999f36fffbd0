//! Inodes of one stretch of numbers, which are brought together where one after the other is asked for.
//!
//! - Files made one after the other have numbers one after the other, and are mostly used so (engine rule 19). One scan brings a
//!   stretch for little more than what one inode costs alone.
//! - Whoever asks for a second inode of a stretch brings it, or for the first of the one behind; others wait for that.
//! - This says what to fetch. What is fetched enters the cache by its own rules ([`crate::cache`]).

use parking_lot::Mutex;
use tarn_base::ids::{Ino, VolumeId};

use crate::key::Key;

/// Inodes of a stretch, and how many stretches are remembered: those asked for last.
pub const STRETCH: u64 = 64;
const STRETCHES: usize = 256;

/// A volume and the number of a stretch.
type Of = (VolumeId, u64);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    AskedFor,
    Bringing,
    Tried,
}

#[derive(Debug, Default)]
struct Seen {
    of: Option<Of>,
    state: State,
}

#[derive(Debug, Default)]
pub struct Stretch {
    seen: Mutex<Seen>,
    /// Held while it is brought, and by who waits for that.
    pub turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
pub struct Neighbours {
    stretches: Vec<Stretch>,
}

impl Default for Neighbours {
    fn default() -> Neighbours {
        Neighbours { stretches: (0..STRETCHES).map(|_| Stretch::default()).collect() }
    }
}

impl Neighbours {
    fn slot(&self, of: Of) -> &Stretch {
        &self.stretches[of.1 as usize % STRETCHES]
    }

    /// The stretch of a missing inode, to be brought whole; `None` if it is to be fetched alone.
    pub fn stretch(&self, inode: &Key) -> Option<&Stretch> {
        let of = (inode.volume, inode.a / STRETCH);
        let before = (inode.volume, of.1.wrapping_sub(1));
        let follows = {
            let seen = self.slot(before).seen.lock();
            seen.of == Some(before) && seen.state == State::Tried
        };
        let slot = self.slot(of);
        let mut seen = slot.seen.lock();
        if seen.of == Some(of) {
            return (seen.state != State::Tried).then_some(slot);
        }
        *seen = Seen { of: Some(of), state: State::AskedFor };
        follows.then_some(slot)
    }

    /// The inodes that lie in a stretch with this one.
    pub fn inodes(inode: &Key) -> (Key, Key) {
        let first = inode.a / STRETCH * STRETCH;
        (Key::inode(inode.volume, Ino(first)), Key::inode(inode.volume, Ino(first.saturating_add(STRETCH))))
    }

    /// Whether who has the turn is to bring the stretch of this inode: it is tried once. [`Neighbours::over`] must follow.
    pub fn begin(&self, inode: &Key) -> bool {
        self.turn_to(inode, State::Bringing) == Some(State::AskedFor)
    }

    /// It was tried.
    pub fn over(&self, inode: &Key) {
        self.turn_to(inode, State::Tried);
    }

    /// The state it had, if it is remembered.
    fn turn_to(&self, inode: &Key, state: State) -> Option<State> {
        let of = (inode.volume, inode.a / STRETCH);
        let mut seen = self.slot(of).seen.lock();
        (seen.of == Some(of)).then(|| std::mem::replace(&mut seen.state, state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(1);

    fn inode(number: u64) -> Key {
        Key::inode(VOLUME, Ino(number))
    }

    #[test]
    fn a_stretch_is_brought_for_its_second_inode_and_the_next_for_its_first() {
        let neighbours = Neighbours::default();
        let due = |number| neighbours.stretch(&inode(number)).is_some();
        assert!(!due(70) && due(71) && due(72), "others wait for the second");
        assert!(neighbours.begin(&inode(71)) && due(73), "others wait for it");
        assert!(!neighbours.begin(&inode(72)), "it is tried once");
        neighbours.over(&inode(71));
        assert!(!due(73), "it was brought, and is gone: alone");
        assert!(due(128), "the next of a run");
        assert!(!due(1000) && !due(5000) && !due(9000));
        assert!(!due(70 + 64 * STRETCHES as u64) && !due(70), "each forgets the other");
        assert_eq!(Neighbours::inodes(&inode(127)), (inode(64), inode(128)));
    }
}
