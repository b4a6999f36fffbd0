//! What READDIR and READDIRPLUS share: how many entries fit.
//!
//! - A reply is never longer than the client asked for, counted as RFC 1813 counts: the whole of
//!   READDIR3resok or READDIRPLUS3resok, XDR's own bytes included.
//! - A reply without entries means the end of the directory; if not even one fits the answer is TOOSMALL.
//! - Cookies are stable for ever, so the cookie verifier is a constant and never judged.

use tarn_vfs::{Change, DirEntry, ListReply, ListRequest};

use super::procedure::{Failed, View};
use crate::wire::nfs3::{ENTRY_OVERHEAD, LIST_OVERHEAD, Status, Verifier};
use crate::wire::xdr::{Writer, padding};

/// The cookie verifier of every directory.
const VERIFIER: Verifier = [0; 8];
/// Longest reply, bytes, whatever a client asks for.
const REPLY_SIZE_MAX: usize = 1 << 20;

/// What fits into a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the whole result.
    pub size_max: usize,
    /// Bytes of entries without attributes and handles.
    pub names_size_max: usize,
    /// Bytes that attributes and handle add to an entry.
    pub extra: usize,
}

impl Limits {
    pub fn new(size_max: u32, names_size_max: u32, extra: usize) -> Limits {
        let size_max = (size_max as usize).min(REPLY_SIZE_MAX);
        Limits { size_max, names_size_max: names_size_max as usize, extra }
    }

    /// The listing after `cookie` that fills a reply. It may bring a little more than fits, for the file system
    /// does not count padding.
    pub fn request(&self, cookie: u64, attrs: bool) -> ListRequest {
        let room = self.size_max.saturating_sub(LIST_OVERHEAD);
        let entry_overhead = ENTRY_OVERHEAD + self.extra;
        let by_size = room / (entry_overhead + 1) + 1;
        let by_names = self.names_size_max / (ENTRY_OVERHEAD + 1) + 1;
        ListRequest {
            after: cookie,
            entries_max: by_size.min(by_names) as u32,
            bytes_max: room as u32,
            entry_overhead: entry_overhead as u32,
            attrs,
        }
    }

    /// Encodes directory attributes, verifier and as many entries as fit, each by `encode`.
    pub fn encode(
        &self,
        w: &mut Writer,
        view: &View,
        reply: &ListReply,
        encode: impl Fn(&mut Writer, &DirEntry),
    ) -> Result<(), Failed> {
        let mut size = LIST_OVERHEAD;
        let mut names_size = 0;
        let mut count = 0;
        let begin = w.mark();
        view.attr(w, Some(&reply.dir));
        w.fixed(&VERIFIER);
        for entry in &reply.entries {
            let name_size = ENTRY_OVERHEAD + entry.name.len() + padding(entry.name.len());
            size += name_size + self.extra;
            names_size += name_size;
            // A count of names too small for a single one still gets one: the client gets on.
            if size > self.size_max || (names_size > self.names_size_max && count > 0) {
                break;
            }
            w.bool(true);
            encode(w, entry);
            count += 1;
        }
        let is_end = reply.entries.is_empty() && reply.eof;
        if self.size_max < LIST_OVERHEAD || (count == 0 && !is_end) {
            let changes = [Change { before: None, after: Some(reply.dir.clone()) }, Change::default()];
            return Err(Failed { status: Status::TooSmall, changes });
        }
        w.bool(false);
        w.bool(reply.eof && count == reply.entries.len());
        debug_assert!(w.len_since(begin) <= self.size_max, "a listing is longer than was asked for");
        Ok(())
    }
}
