//! The status monitor as a program: hears of clients that have restarted.
//!
//! - It monitors nobody for others: whoever asks it to is told that it fails, and nothing is kept for him. The
//!   lock manager keeps with each lock whom to tell.
//! - A notice is confirmed when its effect is durable; a repeat of one has no effect and waits for that of the first. One that
//!   comes from another address than the client's locks is confirmed at once: whether it is believed takes longer.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tarn_base::ids::Position;
use tarn_vfs::FileSystem;

use super::proto::{Notice, PROGRAM, SM_NOTIFY, STAT_FAIL, VERSION};
use crate::nlm::Nlm;
use crate::service::{CallContext, Program, Progress};
use crate::wire::rpc::{AcceptStatus, AuthStatus, Call};
use crate::wire::xdr::Writer;

/// Most notices remembered.
const NOTICES_MAX: usize = 4096;

/// By address and name: the number of a life, and what must be durable.
type Heard = BTreeMap<(IpAddr, Bytes), (u32, Position)>;

/// The status monitor. One serves all transports.
pub struct Nsm {
    fs: Arc<dyn FileSystem>,
    nlm: Arc<Nlm>,
    /// The last notice about each name from each address, and when its effect is durable.
    heard: Arc<Mutex<Heard>>,
}

/// Our number as clients see it: odd, never 0, and another after each opening that lost locks.
pub fn state_number(fs: &dyn FileSystem) -> u32 {
    // The number is signed on the wire.
    (fs.incarnation().wrapping_mul(2) & 0x7fff_ffff) | 1
}

impl Nsm {
    pub fn new(fs: Arc<dyn FileSystem>, nlm: Arc<Nlm>) -> Nsm {
        Nsm { fs, nlm, heard: Arc::default() }
    }

    fn notify(&self, cx: &CallContext<'_>, call: &Call<'_>) -> Progress {
        let Ok(notice) = Notice::decode(call.args) else {
            return Progress::Refused(AcceptStatus::GarbageArguments);
        };
        let (name, state, source) = (Bytes::copy_from_slice(notice.name), notice.state, cx.peer);
        let key = (source.ip(), name.clone());
        if let Some((last, position)) = self.heard.lock().get(&key)
            && *last == state
        {
            return Progress::Done { position: *position, status: 0 };
        }
        let (nlm, heard) = (self.nlm.clone(), self.heard.clone());
        Progress::Later(Box::pin(async move {
            let progress = match nlm.client_restarted(&name, source, state).await {
                Ok(position) => {
                    let mut heard = heard.lock();
                    if heard.len() >= NOTICES_MAX {
                        heard.clear();
                    }
                    heard.insert(key, (state, position));
                    Progress::Done { position, status: 0 }
                }
                Err(_) => Progress::Refused(AcceptStatus::SystemError),
            };
            (Writer::new(), progress)
        }))
    }
}

impl Program for Nsm {
    fn number(&self) -> u32 {
        PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        VERSION..=VERSION
    }

    fn name(&self) -> &'static str {
        "status"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &["NULL", "STAT", "MON", "UNMON", "UNMON_ALL", "SIMU_CRASH", "NOTIFY"]
    }

    fn call(&self, cx: &CallContext<'_>, call: &Call<'_>, reply: &mut Writer) -> Progress {
        match call.procedure {
            0 => Progress::now(0),
            // STAT, MON: whether we will monitor, and our number.
            1 | 2 => {
                reply.u32(STAT_FAIL);
                reply.u32(state_number(self.fs.as_ref()));
                Progress::now(STAT_FAIL)
            }
            // UNMON, UNMON_ALL: nobody is monitored any more.
            3 | 4 => {
                reply.u32(state_number(self.fs.as_ref()));
                Progress::now(0)
            }
            // SIMU_CRASH: would release the locks of everybody.
            5 => Progress::Denied(AuthStatus::TooWeak),
            SM_NOTIFY => self.notify(cx, call),
            _ => Progress::Refused(AcceptStatus::ProcedureUnavailable),
        }
    }
}
