//! Operations and answers as a person reads them in a trace.

use tarn_vfs::op::{Op, Seen};
use tarn_vfs::walk::Facts;
use tarn_vfs::{LockRange, SetAttr, SetTime};

/// An operation in a few words; `s3` is slot 3.
// long: dispatch table
pub fn op(op: &Op) -> String {
    match op {
        Op::Getattr { node } => format!("getattr s{}", node.0),
        Op::Setattr { node, set } => format!("setattr s{}{}", node.0, attributes(set)),
        Op::Access { node, want } => format!("access s{} {:#x}", node.0, want.0),
        Op::Readlink { node } => format!("readlink s{}", node.0),
        Op::Read { node, offset, count } => format!("read s{} {offset}+{count}", node.0),
        Op::Write { node, offset, data, stability } => {
            format!("write s{} {offset}+{} {stability:?} data {:x}", node.0, data.count, data.seed)
        }
        Op::Commit { node } => format!("commit s{}", node.0),
        Op::Lookup { dir, name, into } => format!("lookup s{}/{} as s{}", dir.0, name.escape_ascii(), into.0),
        Op::List { dir, page } => format!("list s{} by {page}", dir.0),
        Op::Create { dir, name, mode, set, into } => {
            format!("create s{}/{} {mode:?}{} as s{}", dir.0, name.escape_ascii(), attributes(set), into.0)
        }
        Op::Mkdir { dir, name, set, into } => {
            format!("mkdir s{}/{}{} as s{}", dir.0, name.escape_ascii(), attributes(set), into.0)
        }
        Op::Make { dir, name, what, set, into } => {
            format!("make s{}/{} {what:?}{} as s{}", dir.0, name.escape_ascii(), attributes(set), into.0)
        }
        Op::Link { node, dir, name } => format!("link s{} at s{}/{}", node.0, dir.0, name.escape_ascii()),
        Op::Remove { dir, name } => format!("remove s{}/{}", dir.0, name.escape_ascii()),
        Op::Rmdir { dir, name } => format!("rmdir s{}/{}", dir.0, name.escape_ascii()),
        Op::Rename { from, name, to, new_name } => {
            format!("rename s{}/{} to s{}/{}", from.0, name.escape_ascii(), to.0, new_name.escape_ascii())
        }
        Op::Statfs { node } => format!("statfs s{}", node.0),
        Op::Lock { node, owner, kind, range, wait } => {
            let wait = if *wait { " waiting" } else { "" };
            format!("lock s{} {kind:?} {} by {}{wait}", node.0, bytes(range), owner.owner.escape_ascii())
        }
        Op::Unlock { node, owner, range } => {
            format!("unlock s{} {} by {}", node.0, bytes(range), owner.owner.escape_ascii())
        }
        Op::ReleaseClient { client } => format!("release {}", client.escape_ascii()),
    }
}

/// An answer in a few words.
pub fn seen(seen: &Seen) -> String {
    match seen {
        Seen::Refused(errno) => format!("{errno:?}"),
        Seen::Object(of) => facts(of),
        Seen::Rights(rights, _) => format!("rights {rights:#x}"),
        Seen::Target(target, _) => format!("-> {}", target.escape_ascii()),
        Seen::Bytes { count, hash, eof, facts: of } => {
            format!("{count} bytes {hash:016x}{} of {}", if *eof { " to the end" } else { "" }, of.size)
        }
        Seen::Changed { object, count, after } => {
            let mut out = String::from("done");
            if *count > 0 {
                out += &format!(" {count} bytes");
            }
            if let Some(object) = object {
                out += &format!(": {}", facts(object));
            }
            for of in after.iter().flatten() {
                out += &format!(", {}", facts(of));
            }
            out
        }
        Seen::Entries(entries) => {
            let names: Vec<String> = entries.iter().map(|(name, _)| name.escape_ascii().to_string()).collect();
            format!("{} entries: {}", names.len(), names.join(" "))
        }
        Seen::Locked(how) => (*how).to_owned(),
        Seen::Nothing => "done".to_owned(),
    }
}

fn facts(of: &Facts) -> String {
    format!("{:?} {:04o} links {} {}:{} size {}", of.kind, of.mode, of.links, of.uid, of.gid, of.size)
}

fn attributes(set: &SetAttr) -> String {
    let mut out = String::new();
    if let Some(mode) = set.mode {
        out += &format!(" mode {mode:04o}");
    }
    if let Some(uid) = set.uid {
        out += &format!(" uid {uid}");
    }
    if let Some(gid) = set.gid {
        out += &format!(" gid {gid}");
    }
    if let Some(size) = set.size {
        out += &format!(" size {size}");
    }
    for (name, time) in [("atime", set.atime), ("mtime", set.mtime)] {
        match time {
            Some(SetTime::Now) => out += &format!(" {name} now"),
            Some(SetTime::To(time)) => out += &format!(" {name} {}.{:09}", time.seconds, time.nanos),
            None => {}
        }
    }
    out
}

fn bytes(range: &LockRange) -> String {
    if range.end == u64::MAX { format!("{}..", range.start) } else { format!("{}..{}", range.start, range.end) }
}
