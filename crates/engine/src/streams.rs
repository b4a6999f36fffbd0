//! Which files are being written in long streams: UNSTABLE bytes of large writes since the last COMMIT of each. And up to where
//! what passed the log by in them is settled.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tarn_base::ids::{Ino, VolumeId};

use crate::entry::Entry;

/// Files that are counted at once; with more of them all begin anew, which costs them a little speed.
const FILES_MAX: usize = 4096;

type Files = Mutex<BTreeMap<(VolumeId, Ino), u64>>;

#[derive(Debug, Default)]
pub struct Streams {
    taken: Files,
    /// Generations before this number hold nothing of the file that has to be settled any more.
    settled: Files,
}

impl Streams {
    /// UNSTABLE data of a large write was taken.
    pub fn takes(&self, entry: &Entry) {
        let Some(change) = entry.data.first() else { return };
        let mut taken = self.taken.lock();
        if taken.len() >= FILES_MAX {
            taken.clear();
        }
        *taken.entry((change.key.0, change.key.1)).or_default() += entry.bytes() as u64;
    }

    /// A COMMIT: nothing of the file is UNSTABLE any more.
    pub fn ends(&self, volume: VolumeId, ino: Ino) {
        self.taken.lock().remove(&(volume, ino));
    }

    /// How much of a file was taken.
    pub fn taken(&self, volume: VolumeId, ino: Ino) -> u64 {
        self.taken.lock().get(&(volume, ino)).copied().unwrap_or(0)
    }

    /// The first generation that may hold something of a file that is not settled.
    pub fn unsettled_from(&self, volume: VolumeId, ino: Ino) -> u64 {
        self.settled.lock().get(&(volume, ino)).copied().unwrap_or(0)
    }

    /// What generations before `number` hold of a file is settled; `oldest` is the first that is still there.
    pub fn settled_before(&self, volume: VolumeId, ino: Ino, number: u64, oldest: u64) {
        let mut settled = self.settled.lock();
        if settled.len() >= FILES_MAX {
            settled.retain(|_, number| *number > oldest);
        }
        if number > oldest {
            settled.insert((volume, ino), number);
        }
    }
}
