//! Working off cuts and dead maps: pointers that do not count are removed, then the cut itself.
//!
//! - A cut is begun once its key is in the view: every older dirty data is in the store by then, so no pointer that
//!   it hides can come into being any more.
//! - A pointer is removed under its inode's lock, while no dirty data lies over it: data that does gets its pointer's
//!   charge, and its own checkpoint replaces the pointer.
//! - A pointer that only partial cuts hide still holds its charge, and is discharged as it goes; the charges under a
//!   whole cut, or of a file that is gone, were dropped when that was made.
//! - A cut goes when a whole scan of the view has left nothing in it.

use std::sync::Arc;

use tarn_base::ids::{Ino, VolumeId};
use tarn_data::RecordPointer;
use tarn_vfs::Errno;

use super::{KEYS_AT_ONCE, Reclaim, ReclaimError, Reclaimed};
use crate::key::{Key, Kind};
use crate::overlay::Stack;
use crate::pages::Pages;
use crate::run::{Operation, Stamp};
use crate::stripes::LockSet;
use crate::tx::{Step, Tx};
use crate::value::{Cut, Inode, MapState};

/// Removes pointers that do not count, found in the view of a version.
#[derive(Clone)]
struct RemovePointers {
    volume: VolumeId,
    map: Ino,
    version: u64,
    /// Record number and map generation of each.
    hidden: Vec<(u64, u32)>,
}

#[derive(Clone, Copy, Default)]
struct Removed {
    /// The view has changed since: look again.
    stale: bool,
    removed: u64,
    /// Dirty data lies over them.
    left: u64,
}

impl Stamp for Removed {}

impl Operation for RemovePointers {
    type Out = Removed;

    fn locks(&self) -> LockSet {
        LockSet::exclusive(self.volume, self.map.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<Removed> {
        if tx.stack.version != self.version {
            return Ok(Removed { stale: true, ..Removed::default() });
        }
        let (map_key, inode_key) = (Key::map(self.volume, self.map), Key::inode(self.volume, self.map));
        tx.prefetch([map_key, inode_key])?;
        let Some(state) = tx.value(&map_key, MapState::decode)? else { return Ok(Removed::default()) };
        let mut inode = if state.dead { None } else { Some(tx.inode(self.volume, self.map)?) };
        let mut out = Removed::default();
        let mut discharged = 0;
        let stack = tx.stack.clone();
        for &(record, generation) in self.hidden.iter().filter(|(record, made_in)| !state.counts(*record, *made_in)) {
            let key = Key::pointer(self.volume, self.map, record);
            // The overlay holds pointers only as removed.
            if stack.get(&key).is_some() {
                continue;
            }
            if stack.has_record(&(self.volume, self.map, record)) {
                out.left += 1;
                continue;
            }
            tx.remove(key);
            out.removed += 1;
            discharged += u64::from(!state.drops_charge(generation));
        }
        if let Some(inode) = inode.as_mut().filter(|_| discharged > 0) {
            self.discharge(tx, inode, discharged);
        }
        Ok(out)
    }
}

impl RemovePointers {
    fn discharge(&self, tx: &mut Tx<'_>, inode: &mut Inode, records: u64) {
        if inode.records < records {
            tx.core.damaged(&Key::inode(self.volume, self.map), "it is charged for fewer records than it has");
        }
        let records = records.min(inode.records);
        inode.records -= records;
        tx.charge(self.volume, -((records << inode.record_bits) as i64), 0);
        tx.put_inode_silently(self.volume, self.map, inode);
    }
}

/// Drops cuts under which nothing is left, or a dead map.
#[derive(Clone)]
struct DropCuts {
    volume: VolumeId,
    map: Ino,
    dead: bool,
    cuts: Vec<Cut>,
}

impl Operation for DropCuts {
    type Out = ();

    fn locks(&self) -> LockSet {
        LockSet::exclusive(self.volume, self.map.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<()> {
        let (map_key, inode_key) = (Key::map(self.volume, self.map), Key::inode(self.volume, self.map));
        tx.prefetch([map_key, inode_key])?;
        let Some(mut state) = tx.value(&map_key, MapState::decode)? else { return Ok(()) };
        if state.dead || self.dead {
            if state.dead && self.dead {
                tx.remove(map_key);
            }
            return Ok(());
        }
        let mut inode = tx.inode(self.volume, self.map)?;
        state.cuts.retain(|cut| !self.cuts.contains(cut));
        if state.cuts.is_empty() {
            tx.remove(map_key);
            inode.has_cuts = false;
            tx.put_inode_silently(self.volume, self.map, &inode);
        } else {
            tx.put(map_key, |out| state.encode(out));
        }
        Ok(())
    }
}

impl Reclaim {
    /// Works off every cut that is in the view, as far as it can be.
    pub(crate) async fn work_cuts_off(&self, done: &mut Reclaimed) -> Result<(), ReclaimError> {
        for volume in self.core.volumes.all() {
            let mut pages = Pages::kind(self.core.stack.load().view.clone(), volume.id, Kind::Map);
            while let Some(entries) = pages.next().await? {
                for (key, value) in entries {
                    let Some(key) = Key::decode(&key) else { continue };
                    match MapState::decode(&value) {
                        Ok(state) => self.work_map_off(volume.id, Ino(key.a), state, done).await?,
                        Err(error) => self.core.damaged(&key, &error.to_string()),
                    }
                }
            }
        }
        Ok(())
    }

    async fn work_map_off(
        &self,
        volume: VolumeId,
        map: Ino,
        state: MapState,
        done: &mut Reclaimed,
    ) -> Result<(), ReclaimError> {
        let all = [Cut { from: 0, to: u64::MAX, generation: u32::MAX }];
        let cuts: &[Cut] = if state.dead { &all } else { &state.cuts };
        let mut finished = Vec::new();
        for cut in cuts {
            if self.clear(volume, map, state.dead, *cut, done).await? {
                finished.push(*cut);
            }
        }
        if finished.is_empty() {
            return Ok(());
        }
        done.cuts += finished.len() as u64;
        let cuts = if state.dead { Vec::new() } else { finished };
        self.execute_here(DropCuts { volume, map, dead: state.dead, cuts }).await.map(|_| ())
    }

    /// Removes what a cut hides; says whether nothing was left.
    async fn clear(
        &self,
        volume: VolumeId,
        map: Ino,
        dead: bool,
        cut: Cut,
        done: &mut Reclaimed,
    ) -> Result<bool, ReclaimError> {
        let (mut at, end) = (cut.from, Key::pointer(volume, map, cut.to).encode());
        let mut left = 0;
        loop {
            let stack: Arc<Stack> = self.core.stack.load();
            let page = stack.view.scan(&Key::pointer(volume, map, at).encode(), &end, KEYS_AT_ONCE).await?;
            let Some(last) = page.entries.last().and_then(|(key, _)| Key::decode(key)) else { return Ok(left == 0) };
            let mut hidden = Vec::new();
            for (key, value) in &page.entries {
                let Some(key) = Key::decode(key) else { continue };
                match RecordPointer::decode(value) {
                    Ok(pointer) if dead || pointer.generation < cut.generation => {
                        hidden.push((key.b, pointer.generation));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        self.core.damaged(&key, &error.to_string());
                        left += 1;
                    }
                }
            }
            if !hidden.is_empty() {
                let operation = RemovePointers { volume, map, version: stack.version, hidden };
                let Some(removed) = self.execute_here(operation).await? else { return Ok(false) };
                if removed.stale {
                    continue;
                }
                done.pointers += removed.removed;
                left += removed.left;
            }
            match last.b.checked_add(1) {
                Some(next) if !page.complete => at = next,
                _ => return Ok(left == 0),
            }
        }
    }

    /// As [`Reclaim::execute`]; `None` if what it works on is damaged or its volume went away.
    async fn execute_here<O: Operation + Clone>(&self, operation: O) -> Result<Option<O::Out>, ReclaimError> {
        match self.execute(operation).await {
            Err(ReclaimError::Refused(Errno::Io | Errno::Stale)) => Ok(None),
            outcome => outcome.map(Some),
        }
    }
}
