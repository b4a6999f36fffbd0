//! A directory entry is two values: one found by name, one by cookie (engine rule 19).

use bytes::Bytes;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::Ino;
use tarn_vfs::{FileType, NAME_MAX};

use super::inode::file_type;
use super::{put_head, take_head};

/// An entry as found by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashEntry {
    pub name: Bytes,
    pub ino: Ino,
    pub kind: FileType,
    pub cookie: u64,
}

/// All entries of a directory whose names share a hash; nearly always one. Look-up compares bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    pub born: u32,
    pub entries: Vec<HashEntry>,
}

impl Bucket {
    /// Most names with one hash; one more finds no space.
    pub const ENTRIES_MAX: usize = 1000;

    /// What stands under the hash of an entry in listing order, if no other name has that.
    pub fn of_one(entry: CookieEntry, cookie: u64) -> Bucket {
        let CookieEntry { born, name, ino, kind } = entry;
        Bucket { born, entries: vec![HashEntry { name, ino, kind, cookie }] }
    }

    /// Where the entry of a name is.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == name)
    }

    /// The inode of `name` in an encoded bucket, which is what look-up asks for most: nothing is copied.
    pub fn ino_of(bytes: &[u8], name: &[u8]) -> Decoded<Option<Ino>> {
        let mut take = Take::new(bytes);
        take_head(&mut take)?;
        for _ in 0..take.count(11)? {
            let (held, ino, _) = take_borrowed(&mut take)?;
            take.varint()?;
            if held == name {
                return Ok(Some(ino));
            }
        }
        take.end()?;
        Ok(None)
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, self.born);
        out.put_u32(self.entries.len() as u32);
        for entry in &self.entries {
            put_entry(out, &entry.name, entry.ino, entry.kind);
            out.put_varint(entry.cookie);
        }
    }

    pub fn decode(bytes: &[u8]) -> Decoded<Bucket> {
        let mut take = Take::new(bytes);
        let born = take_head(&mut take)?;
        let count = take.count(11)?;
        if count > Self::ENTRIES_MAX {
            return Err(DecodeError::Range("a count of entries"));
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            let (name, ino, kind) = take_entry(&mut take)?;
            entries.push(HashEntry { name, ino, kind, cookie: take.varint()? });
        }
        take.end()?;
        Ok(Bucket { born, entries })
    }
}

/// An entry as found in listing order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieEntry {
    pub born: u32,
    pub name: Bytes,
    pub ino: Ino,
    pub kind: FileType,
}

impl CookieEntry {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, self.born);
        put_entry(out, &self.name, self.ino, self.kind);
    }

    pub fn decode(bytes: &[u8]) -> Decoded<CookieEntry> {
        let mut take = Take::new(bytes);
        let born = take_head(&mut take)?;
        let (name, ino, kind) = take_entry(&mut take)?;
        take.end()?;
        Ok(CookieEntry { born, name, ino, kind })
    }
}

fn put_entry(out: &mut Vec<u8>, name: &[u8], ino: Ino, kind: FileType) {
    out.put_u8(name.len() as u8);
    out.put(name);
    out.put_u64(ino.0);
    out.put_u8(kind as u8);
}

fn take_entry(take: &mut Take<'_>) -> Decoded<(Bytes, Ino, FileType)> {
    let (name, ino, kind) = take_borrowed(take)?;
    Ok((Bytes::copy_from_slice(name), ino, kind))
}

fn take_borrowed<'a>(take: &mut Take<'a>) -> Decoded<(&'a [u8], Ino, FileType)> {
    let len = usize::from(take.u8()?);
    debug_assert!(len <= NAME_MAX);
    Ok((take.take(len)?, Ino(take.u64()?), file_type(take.u8()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_encoding_and_are_found_by_their_bytes() {
        let entry = |name: &'static [u8], cookie| HashEntry {
            name: Bytes::from_static(name),
            ino: Ino(9),
            kind: FileType::Fifo,
            cookie,
        };
        let bucket = Bucket { born: 1, entries: vec![entry(b"a\xff", 3), entry(b"b", 1 << 61)] };
        let mut out = Vec::new();
        bucket.encode(&mut out);
        assert_eq!(Bucket::decode(&out).as_ref(), Ok(&bucket));
        assert_eq!(bucket.find(b"b").map(|at| bucket.entries[at].cookie), Some(1 << 61));
        assert!(bucket.find(b"B").is_none());
        assert_eq!(Bucket::ino_of(&out, b"b"), Ok(Some(Ino(9))));
        assert_eq!(Bucket::ino_of(&out, b"B"), Ok(None));
        assert!(Bucket::ino_of(&out[..out.len() - 1], b"B").is_err());

        let entry = CookieEntry { born: 2, name: vec![7; 255].into(), ino: Ino(5), kind: FileType::Regular };
        let mut out = Vec::new();
        entry.encode(&mut out);
        assert_eq!(CookieEntry::decode(&out), Ok(entry));
    }
}
