//! What operations on file data share: which records count, what is charged, cutting.
//!
//! - A record is charged once, by whoever first makes it hold data, and discharged once (see
//!   `docs/internals/engine.md`, "Charges").
//! - Beyond the end of a file every byte of its records is zero.

use std::ops::Range;

use tarn_base::ids::{Ino, VolumeId};
use tarn_base::mutant;
use tarn_data::RecordPointer;
use tarn_vfs::posix::atime_due;
use tarn_vfs::{Attr, Errno, Node};

use crate::entry::{DataChange, Payload};
use crate::key::Key;
use crate::overlay::DataKey;
use crate::tx::{Step, Tx};
use crate::value::{Cut, Inode, MapState};
use crate::volumes::Volume;

/// A file of at most so many records is removed with its pointers; a larger one leaves them to the background.
const AT_ONCE_MAX: u64 = 8;

/// The records that bytes `offset..offset + len` touch: number, start and end within it.
pub fn records_of(bits: u8, offset: u64, len: u64) -> impl Iterator<Item = (u64, u32, u32)> {
    let size = 1u64 << bits;
    let end = offset + len;
    let last = if len == 0 { offset >> bits } else { ((end - 1) >> bits) + 1 };
    (offset >> bits..last).map(move |record| {
        let base = record << bits;
        let from = offset.max(base) - base;
        // The last record of the largest file ends at 2^63, so this cannot overflow.
        let to = end.min(base + size) - base;
        (record, from as u32, to as u32)
    })
}

/// Sets the access time of what was read and has these attributes, where it is due; never at the price of waiting for room in the
/// log.
pub fn touch(tx: &mut Tx<'_>, node: Node, attr: &mut Attr) -> Step<()> {
    let core = tx.core;
    let held_up = || core.log_is_filling() || core.overlay_is_full() || core.health.read_only.read().is_some();
    if !atime_due(attr, core.world.clock.now_about()) || held_up() {
        return Ok(());
    }
    tx.lock(node.volume, node.ino, true)?;
    let mut inode = tx.node(node)?;
    inode.atime = tx.now();
    tx.unstable = true;
    tx.put_inode_silently(node.volume, node.ino, &inode);
    *attr = inode.attr(node.volume, node.ino);
    Ok(())
}

/// Whether the charge for `record` is held by older data: dirty, or in the store, and not dropped by a whole cut.
pub fn is_charged(
    tx: &mut Tx<'_>,
    volume: &Volume,
    ino: Ino,
    inode: &Inode,
    cuts: Option<&MapState>,
    record: u64,
) -> Step<bool> {
    if inode.records == 0 {
        // None of it is, as at the first write to a file.
        return Ok(false);
    }
    let key: DataKey = (volume.id, ino, record);
    let mut made_in = tx.stack.generations.iter().filter_map(|generation| generation.record_generation(&key));
    // A partial cut has discarded, and discharged, what the open generation held; what is older keeps its charge
    // until the background removes it.
    if made_in.any(|made_in| cuts.is_none_or(|map| !whole_cut_hides(map, made_in))) {
        return Ok(true);
    }
    if tx.is_fresh(inode) {
        return Ok(false);
    }
    let pointer = pointer(tx, volume.id, ino, record)?;
    Ok(pointer.is_some_and(|pointer| cuts.is_none_or(|map| !whole_cut_hides(map, pointer.generation))))
}

fn whole_cut_hides(map: &MapState, generation: u32) -> bool {
    map.dead || map.cuts.iter().any(|cut| cut.from == 0 && cut.to == u64::MAX && generation < cut.generation)
}

/// The stored pointer of a record, whether it counts or not.
pub fn pointer(tx: &mut Tx<'_>, volume: VolumeId, ino: Ino, record: u64) -> Step<Option<RecordPointer>> {
    tx.value(&Key::pointer(volume, ino, record), RecordPointer::decode)
}

/// Writes `payload` at `start` of a record, charging it if it is new.
pub fn write_record(
    tx: &mut Tx<'_>,
    volume: &Volume,
    ino: Ino,
    inode: &mut Inode,
    cuts: Option<&MapState>,
    (record, start): (u64, u32),
    payload: Payload,
) -> Step<()> {
    let new = !is_charged(tx, volume, ino, inode, cuts, record)?;
    if new {
        inode.records += 1;
        tx.charge(volume.id, inode.record_size() as i64, 0);
    }
    tx.core.store_room.writes_record(inode.record_size());
    let key = (volume.id, ino, record);
    tx.write(DataChange { key, generation: inode.map_generation, new, start, payload });
    Ok(())
}

/// Makes the file `size` bytes long, charging and discharging. The inode is not put.
pub fn set_size(tx: &mut Tx<'_>, volume: &Volume, ino: Ino, inode: &mut Inode, size: u64) -> Step<()> {
    let old = std::mem::replace(&mut inode.size, size);
    if size >= old || inode.records == 0 {
        return Ok(());
    }
    let cuts = tx.cuts(volume.id, ino, inode.has_cuts)?;
    let keep = size & (inode.record_size() - 1);
    if keep != 0 {
        let record = size >> inode.record_bits;
        let counts = has_data(tx, volume, ino, inode, cuts.as_ref(), record)?;
        if counts && !mutant::on(mutant::TRUNCATED_TAIL_SHOWN) {
            let zeros = Payload::Zero((inode.record_size() - keep) as u32);
            write_record(tx, volume, ino, inode, cuts.as_ref(), (record, keep as u32), zeros)?;
        }
    }
    let first = size.div_ceil(inode.record_size());
    let beyond = old.div_ceil(inode.record_size());
    if first < beyond { cut(tx, volume, ino, inode, cuts, first) } else { Ok(()) }
}

/// Whether bytes of `record` may be other than zero.
fn has_data(
    tx: &mut Tx<'_>,
    volume: &Volume,
    ino: Ino,
    inode: &Inode,
    cuts: Option<&MapState>,
    record: u64,
) -> Step<bool> {
    let key: DataKey = (volume.id, ino, record);
    let counts = |generation| cuts.is_none_or(|map: &MapState| map.counts(record, generation));
    if tx.stack.generations.iter().filter_map(|held| held.record_generation(&key)).any(counts) {
        return Ok(true);
    }
    if tx.is_fresh(inode) {
        return Ok(false);
    }
    Ok(pointer(tx, volume.id, ino, record)?.is_some_and(|pointer| counts(pointer.generation)))
}

/// Hides every record from `first` on.
fn cut(tx: &mut Tx<'_>, volume: &Volume, ino: Ino, inode: &mut Inode, cuts: Option<MapState>, first: u64) -> Step<()> {
    let whole = first == 0;
    let records: Range<u64> = first..u64::MAX;
    let gone = if whole { inode.records } else { tx.open_generation().charged(volume.id, ino, records.clone()) };
    inode.records = inode.records.saturating_sub(gone);
    tx.charge(volume.id, -((gone << inode.record_bits) as i64), 0);
    tx.entry_mut().discards.push((volume.id, ino, records));
    let generation = inode.map_generation.checked_add(1).ok_or(Errno::FileTooBig)?;
    inode.map_generation = generation;
    if tx.is_open_only(inode) {
        return Ok(());
    }
    let mut map = cuts.unwrap_or_default();
    map.born = volume.record.epoch;
    map.cut(Cut { from: first, to: u64::MAX, generation });
    if map.cuts.len() > MapState::CUTS_MAX {
        // The background works cuts off once they are in the store; until it has, this waits.
        tx.core.want_checkpoint();
        return Err(Errno::TryLater.into());
    }
    inode.has_cuts = true;
    tx.put(Key::map(volume.id, ino), |out| map.encode(out));
    Ok(())
}

/// The file goes: everything it is charged for, and all its data.
pub fn release_all(tx: &mut Tx<'_>, volume: &Volume, ino: Ino, inode: &Inode) -> Step<()> {
    if inode.records == 0 && !inode.has_cuts {
        return Ok(());
    }
    tx.charge(volume.id, -((inode.records << inode.record_bits) as i64), 0);
    tx.entry_mut().discards.push((volume.id, ino, 0..u64::MAX));
    if tx.is_open_only(inode) {
        return Ok(());
    }
    let records = inode.size.div_ceil(inode.record_size());
    if !inode.has_cuts && records <= AT_ONCE_MAX {
        // No cut ever hid any, so these are all it can have. Data of it in older generations gets its pointers before
        // this removes them.
        (0..records).for_each(|record| tx.remove(Key::pointer(volume.id, ino, record)));
        return Ok(());
    }
    let map = MapState { born: volume.record.epoch, dead: true, cuts: Vec::new() };
    tx.put(Key::map(volume.id, ino), |out| map.encode(out));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_fall_into_records() {
        let all = |offset, len| records_of(12, offset, len).collect::<Vec<_>>();
        assert_eq!(all(0, 4096), [(0, 0, 4096)]);
        assert_eq!(all(4000, 200), [(0, 4000, 4096), (1, 0, 104)]);
        assert_eq!(all(8192, 1), [(2, 0, 1)]);
        assert_eq!(all(5, 0), []);
        let end = (1u64 << 63) - 1;
        assert_eq!(all(end - 1, 1), [((end - 1) >> 12, 4094, 4095)]);
    }
}
