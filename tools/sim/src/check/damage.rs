//! A frame of the log that was durable and is damaged now stops the reading: it is never taken for the log's end.

use tarn_base::crypto::Key;
use tarn_wal::faulty::FaultyDisk;
use tarn_wal::{Log, LogError, decoders};

use crate::chance::Chance;
use crate::failure::{Checked, Failure};

/// What frames begin on.
const BLOCK: usize = 4096;
/// Bytes at the front of a frame every one of which is covered by a checksum.
const COVERED: u64 = 96;

/// Damages one frame in a copy of `disk`, after a power cut. A log that does not open is left to the opening.
pub fn check(disk: &FaultyDisk, master: &Key, chance: &mut Chance) -> Checked {
    if !chance.percent(40) {
        return Ok(());
    }
    let image = disk.image();
    let mut frames = Vec::new();
    let opened = Log::open(FaultyDisk::with_image(image.clone(), 0).device(), master);
    let Ok(mut log) = opened else { return Ok(()) };
    let Ok(found) = log.replay(|entry| {
        frames.push(entry.place.frame);
        Ok::<(), LogError>(())
    }) else {
        return Ok(());
    };
    frames.retain(|frame| *frame < found.durable);
    let Some(frame) = frames.get(chance.below(frames.len().max(1) as u64) as usize) else { return Ok(()) };
    let is_it = |block: &[u8]| decoders::frame_seal(block).is_some_and(|(id, _, at)| id == log.id() && at == *frame);
    let Some(block) = image.chunks(BLOCK).position(is_it) else { return Ok(()) };
    let spoilt = FaultyDisk::with_image(image, 0);
    spoilt.flip((block * BLOCK) as u64 + chance.below(COVERED), 1 << chance.below(8));
    match Log::verify(spoilt.device(), master) {
        Err(LogError::Damaged { .. } | LogError::Newer { .. }) => Ok(()),
        other => {
            let expected = format!("damage is told: a bit of the frame at {frame} of {} is flipped", found.durable);
            Err(Failure::new("damage", expected, format!("{other:?}")))
        }
    }
}
