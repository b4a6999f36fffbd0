//! A page of a directory.
//!
//! - Order is the order of creation; a cookie names the same entry for ever.
//! - A page is one moment: no name twice, none missed that was there all the time.

use bytes::Bytes;
use tarn_vfs::posix::{Rights, permits};
use tarn_vfs::{Attr, Caller, DirEntry, Errno, FileType, ListReply, ListRequest, Node};

use super::data::touch;
use super::directory::Directory;
use crate::key::Key;
use crate::run::Operation;
use crate::stripes::LockSet;
use crate::tx::{Step, Stop, Tx};
use crate::value::CookieEntry;

/// Most entries of one page: bounds what one call keeps in RAM.
const PAGE_MAX: usize = 4096;
/// Names are this long on average, for guessing how many entries a page will take.
const NAME_GUESS: u32 = 12;

pub struct List {
    pub caller: Caller,
    pub dir: Node,
    pub request: ListRequest,
}

impl Operation for List {
    type Out = ListReply;

    fn locks(&self) -> LockSet {
        LockSet::shared(self.dir.volume, self.dir.ino.0)
    }

    fn run(&self, tx: &mut Tx<'_>) -> Step<ListReply> {
        let dir = Directory::open(tx, self.dir, false)?;
        if !permits(&dir.before, &self.caller, Rights::READ) {
            return Err(dir.refuse(Errno::Access));
        }
        let page = self.page(tx, &dir);
        let mut page = dir.explain(page)?;
        page.dir = dir.before;
        touch(tx, self.dir, &mut page.dir)?;
        Ok(page)
    }
}

impl List {
    fn page(&self, tx: &mut Tx<'_>, dir: &Directory) -> Step<ListReply> {
        let mut page = Page { request: &self.request, reply: ListReply::default(), bytes: 0 };
        let dots = [(1, &b"."[..], dir.ino), (2, b"..", dir.inode.parent)];
        for (cookie, name, ino) in dots {
            if cookie > self.request.after && !page.push(Bytes::from_static(name), ino, FileType::Directory, cookie) {
                return self.with_attrs(tx, dir, page.reply);
            }
        }
        let first = (self.request.after.saturating_add(1)).max(tarn_vfs::COOKIE_FIRST);
        let volume = dir.volume.id;
        let from = Key::entry_cookie(volume, dir.ino, first);
        let to = Key::entry_cookie(volume, dir.ino, u64::MAX);
        if first < u64::MAX {
            if self.request.attrs {
                tx.need().attrs = self.guess();
            }
            let (entries, all) = tx.scan(from..to, self.guess(), tx.is_fresh(&dir.inode))?;
            page.reply.eof = all;
            for (key, value) in entries {
                let entry = CookieEntry::decode(&value).map_err(|error| {
                    tx.core.damaged(&key, &error.to_string());
                    Errno::Io
                })?;
                if !page.push(entry.name, entry.ino, entry.kind, key.b) {
                    page.reply.eof = false;
                    break;
                }
            }
        } else {
            page.reply.eof = true;
        }
        self.with_attrs(tx, dir, page.reply)
    }

    /// About as many entries as will fit.
    fn guess(&self) -> usize {
        let each = self.request.entry_overhead + NAME_GUESS;
        let fit = self.request.bytes_max / each.max(1) + 8;
        (fit.min(self.request.entries_max) as usize).clamp(1, PAGE_MAX)
    }

    fn with_attrs(&self, tx: &mut Tx<'_>, dir: &Directory, mut reply: ListReply) -> Step<ListReply> {
        if !self.request.attrs {
            return Ok(reply);
        }
        let volume = dir.volume.id;
        let mut missing = false;
        for entry in &mut reply.entries {
            match tx.find_inode(volume, entry.ino) {
                Ok(inode) => entry.attr = inode.map(|inode| -> Attr { inode.attr(volume, entry.ino) }),
                // The next are looked at, so that one fetch brings all.
                Err(Stop::Need) => missing = true,
                Err(stop) => return Err(stop),
            }
        }
        if missing {
            return Err(Stop::Need);
        }
        Ok(reply)
    }
}

struct Page<'a> {
    request: &'a ListRequest,
    reply: ListReply,
    bytes: u64,
}

impl Page<'_> {
    /// Adds an entry if it fits. A page without room for one is empty, and not the end.
    fn push(&mut self, name: Bytes, ino: tarn_base::ids::Ino, kind: FileType, cookie: u64) -> bool {
        let bytes = self.bytes + u64::from(self.request.entry_overhead) + name.len() as u64;
        let count = self.reply.entries.len();
        if bytes > u64::from(self.request.bytes_max) || count >= self.request.entries_max as usize {
            return false;
        }
        self.bytes = bytes;
        self.reply.entries.push(DirEntry { name, ino, kind, cookie, attr: None });
        true
    }
}
