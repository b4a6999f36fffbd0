//! Reads under way: whoever misses a record that is being read waits for that read.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::ids::SegmentId;
use tarn_vfs::Errno;
use tokio::sync::oneshot;

pub type Name = (SegmentId, u32);
type Outcome = Result<Bytes, Errno>;

#[derive(Debug, Default)]
pub struct Flights(Mutex<BTreeMap<Name, Vec<oneshot::Sender<Outcome>>>>);

/// What to do about a record.
pub enum Board {
    /// Nobody reads it yet: read it, then [`Flight::land`].
    Lead,
    Join(oneshot::Receiver<Outcome>),
}

/// Reads led by one caller; those that did not land when it is dropped are given up, and whoever joined tries again.
pub struct Flight<'a> {
    flights: &'a Flights,
    led: Vec<Name>,
}

impl Flights {
    pub fn begin(&self) -> Flight<'_> {
        Flight { flights: self, led: Vec::new() }
    }
}

impl Flight<'_> {
    pub fn board(&mut self, name: Name) -> Board {
        let mut flying = self.flights.0.lock();
        match flying.get_mut(&name) {
            Some(waiting) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Board::Join(receiver)
            }
            None => {
                flying.insert(name, Vec::new());
                self.led.push(name);
                Board::Lead
            }
        }
    }

    pub fn land(&mut self, name: Name, outcome: &Outcome) {
        let waiting = self.flights.0.lock().remove(&name);
        for sender in waiting.unwrap_or_default() {
            // Whoever went away does not need it.
            let _ = sender.send(outcome.clone());
        }
        self.led.retain(|led| *led != name);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut flying = self.flights.0.lock();
        for name in &self.led {
            flying.remove(name);
        }
    }
}
