//! Locks of inodes, held for microseconds and never across an await.
//!
//! - An operation takes all its locks at once, in the order of their stripes, so none waits in a circle.
//! - Two inodes may share a stripe; that costs a wait, never correctness.

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use smallvec::SmallVec;
use tarn_base::ids::VolumeId;

const STRIPES: usize = 1024;

/// The locks of all inodes.
#[derive(Debug)]
pub struct Stripes(Vec<RwLock<()>>);

/// Which inodes an operation locks; `true` is exclusively.
#[derive(Clone, Debug, Default)]
pub struct LockSet(SmallVec<[(u16, bool); 6]>);

/// Locks held.
#[derive(Debug)]
#[expect(dead_code, reason = "guards are held, not read")]
pub enum Guard<'a> {
    Shared(RwLockReadGuard<'a, ()>),
    Exclusive(RwLockWriteGuard<'a, ()>),
}

fn stripe(volume: VolumeId, a: u64) -> u16 {
    let mixed = (a ^ u64::from(volume.0).rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 54) as u16
}

impl LockSet {
    pub fn shared(volume: VolumeId, a: u64) -> LockSet {
        let mut set = LockSet::default();
        set.add(volume, a, false);
        set
    }

    pub fn exclusive(volume: VolumeId, a: u64) -> LockSet {
        let mut set = LockSet::default();
        set.add(volume, a, true);
        set
    }

    /// Adds a lock, or makes it exclusive.
    pub fn add(&mut self, volume: VolumeId, a: u64, exclusive: bool) {
        let stripe = stripe(volume, a);
        match self.0.binary_search_by_key(&stripe, |held| held.0) {
            Ok(at) => self.0[at].1 |= exclusive,
            Err(at) => self.0.insert(at, (stripe, exclusive)),
        }
    }

    pub fn holds(&self, volume: VolumeId, a: u64, exclusive: bool) -> bool {
        let stripe = stripe(volume, a);
        self.0.binary_search_by_key(&stripe, |held| held.0).is_ok_and(|at| self.0[at].1 || !exclusive)
    }
}

impl Default for Stripes {
    fn default() -> Stripes {
        Stripes((0..STRIPES).map(|_| RwLock::new(())).collect())
    }
}

impl Stripes {
    #[inline]
    pub fn lock(&self, set: &LockSet) -> SmallVec<[Guard<'_>; 6]> {
        let mut guards = SmallVec::new();
        for &(stripe, exclusive) in &set.0 {
            let lock = &self.0[usize::from(stripe)];
            guards.push(if exclusive { Guard::Exclusive(lock.write()) } else { Guard::Shared(lock.read()) });
        }
        guards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_sorted_and_remembers_the_stronger_lock() {
        let mut set = LockSet::shared(VolumeId(1), 5);
        assert!(set.holds(VolumeId(1), 5, false) && !set.holds(VolumeId(1), 5, true));
        set.add(VolumeId(1), 5, true);
        set.add(VolumeId(1), 1, false);
        assert!(set.holds(VolumeId(1), 5, true));
        assert!(set.0.is_sorted());
        let stripes = Stripes::default();
        assert_eq!(stripes.lock(&set).len(), set.0.len());
    }
}
