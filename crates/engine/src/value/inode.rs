//! An inode: POSIX attributes and where its data hangs.

use bytes::Bytes;
use tarn_base::codec::{DecodeError, Decoded, Put, Take};
use tarn_base::ids::{Ino, Position, VolumeId};
use tarn_base::time::Time;
use tarn_vfs::posix::DIRECTORY_SIZE;
use tarn_vfs::{Attr, FileType, Node};

use super::{put_head, take_head};

/// An inode as stored under `Kind::Inode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Epoch of this value's birth.
    pub born: u32,
    /// Position of the last change; [`Inode::PENDING`] until the entry that changes it has one.
    pub change: Position,
    /// Position of the creation; likewise.
    pub generation: Position,
    pub kind: FileType,
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes; of a directory: the number of its entries.
    pub size: u64,
    /// Records that hold data and are charged.
    pub records: u64,
    /// Record size, as a power of two.
    pub record_bits: u8,
    pub device: (u32, u32),
    pub atime: Time,
    pub mtime: Time,
    pub ctime: Time,
    pub btime: Time,
    /// A directory's parent; the root is its own. Of other objects 0.
    pub parent: Ino,
    /// A directory's next cookie.
    pub next_cookie: u64,
    /// The lineage in which that was set: in a later one it is too low (engine rule 18).
    pub cookie_lineage: u32,
    /// Counts cuts of the map: pointers carry the generation they were made in.
    pub map_generation: u32,
    /// Whether the map has a `Kind::Map` key to be asked which pointers still count.
    pub has_cuts: bool,
    /// Of a directory: no two of its names have ever had one hash at a time. Not said of one from before this was noted.
    pub distinct: bool,
    /// Verifier of the exclusive creation.
    pub verifier: Option<u64>,
    /// Quota domain; 0 is the volume.
    pub domain: u64,
    /// Of a symbolic link.
    pub target: Bytes,
}

/// What finds a file's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Position of the creation.
    pub generation: Position,
    pub record_bits: u8,
    pub has_cuts: bool,
}

impl Inode {
    /// Stands for "the position of the entry that carries this" until there is one.
    pub const PENDING: Position = Position(u64::MAX);
    /// Where `change` and `generation` stand in the encoding.
    pub const CHANGE_AT: usize = 5;
    pub const GENERATION_AT: usize = 13;

    pub fn encode(&self, out: &mut Vec<u8>) {
        put_head(out, self.born);
        out.put_u64(self.change.0);
        out.put_u64(self.generation.0);
        out.put_u8(self.kind as u8);
        out.put_u16(self.mode);
        out.put_u8(self.record_bits);
        let exclusive = self.verifier.is_some();
        out.put_u8(u8::from(self.has_cuts) | u8::from(exclusive) << 1 | u8::from(self.distinct) << 2);
        out.put_u32(self.links);
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_u64(self.size);
        out.put_u64(self.records);
        for time in [self.atime, self.mtime, self.ctime, self.btime] {
            out.put_i64(time.seconds);
            out.put_u32(time.nanos);
        }
        out.put_u32(self.map_generation);
        out.put_varint(self.domain);
        match self.kind {
            FileType::Directory => {
                out.put_u64(self.parent.0);
                out.put_varint(self.next_cookie);
                out.put_u32(self.cookie_lineage);
            }
            FileType::Block | FileType::Character => {
                out.put_u32(self.device.0);
                out.put_u32(self.device.1);
            }
            FileType::Symlink => out.put_bytes(&self.target),
            FileType::Regular | FileType::Socket | FileType::Fifo => {}
        }
        if let Some(verifier) = self.verifier {
            out.put_u64(verifier);
        }
    }

    #[inline]
    pub fn decode(bytes: &[u8]) -> Decoded<Inode> {
        let mut take = Take::new(bytes);
        let born = take_head(&mut take)?;
        let change = Position(take.u64()?);
        let generation = Position(take.u64()?);
        let kind = file_type(take.u8()?)?;
        let mode = take.u16()?;
        let record_bits = take.u8()?;
        if !(12..=20).contains(&record_bits) {
            return Err(DecodeError::Range("a record size"));
        }
        let flags = take.u8()?;
        let (links, uid, gid) = (take.u32()?, take.u32()?, take.u32()?);
        let (size, records) = (take.u64()?, take.u64()?);
        let mut times = [Time::EPOCH; 4];
        for time in &mut times {
            *time = Time { seconds: take.i64()?, nanos: take.u32()? };
        }
        let map_generation = take.u32()?;
        let domain = take.varint()?;
        let mut inode = Inode {
            born,
            change,
            generation,
            kind,
            mode,
            links,
            uid,
            gid,
            size,
            records,
            record_bits,
            device: (0, 0),
            atime: times[0],
            mtime: times[1],
            ctime: times[2],
            btime: times[3],
            parent: Ino(0),
            next_cookie: 0,
            cookie_lineage: 0,
            map_generation,
            has_cuts: flags & 1 != 0,
            distinct: flags & 4 != 0,
            verifier: None,
            domain,
            target: Bytes::new(),
        };
        match kind {
            FileType::Directory => {
                inode.parent = Ino(take.u64()?);
                inode.next_cookie = take.varint()?;
                inode.cookie_lineage = take.u32()?;
            }
            FileType::Block | FileType::Character => inode.device = (take.u32()?, take.u32()?),
            FileType::Symlink => inode.target = take.owned(tarn_vfs::SYMLINK_MAX)?,
            FileType::Regular | FileType::Socket | FileType::Fifo => {}
        }
        if flags & 2 != 0 {
            inode.verifier = Some(take.u64()?);
        }
        take.end()?;
        Ok(inode)
    }

    pub fn record_size(&self) -> u64 {
        1 << self.record_bits
    }

    pub fn layout(&self) -> Layout {
        Layout { generation: self.generation, record_bits: self.record_bits, has_cuts: self.has_cuts }
    }

    /// The attributes as front ends see them.
    pub fn attr(&self, volume: VolumeId, ino: Ino) -> Attr {
        let (size, used) = match self.kind {
            FileType::Directory => (DIRECTORY_SIZE, DIRECTORY_SIZE),
            FileType::Symlink => (self.target.len() as u64, 0),
            _ => (self.size, self.records << self.record_bits),
        };
        Attr {
            node: Node { volume, epoch: 0, ino, generation: self.generation.0 },
            kind: self.kind,
            mode: self.mode,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            size,
            used,
            device: self.device,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            btime: self.btime,
            change: self.change,
        }
    }

    /// Takes over what setting attributes may change.
    pub fn adopt(&mut self, attr: &Attr) {
        self.mode = attr.mode;
        self.uid = attr.uid;
        self.gid = attr.gid;
        self.atime = attr.atime;
        self.mtime = attr.mtime;
        self.ctime = attr.ctime;
    }
}

pub(super) fn file_type(byte: u8) -> Decoded<FileType> {
    Ok(match byte {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::Symlink,
        4 => FileType::Block,
        5 => FileType::Character,
        6 => FileType::Socket,
        7 => FileType::Fifo,
        _ => return Err(DecodeError::Range("a file type")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_encoding_and_the_stamped_fields_stand_where_said() {
        for kind in 1..=7 {
            let inode = Inode {
                born: 1,
                change: Position(0x1122),
                generation: Position(0x3344),
                kind: file_type(kind).unwrap(),
                mode: 0o7777,
                links: 2,
                uid: u32::MAX,
                gid: 4,
                size: if kind == 2 { 70 } else { 1 << 40 },
                records: 5,
                record_bits: 16,
                device: if matches!(kind, 4 | 5) { (8, 1) } else { (0, 0) },
                atime: Time { seconds: -1, nanos: 999_999_999 },
                mtime: Time { seconds: 2, nanos: 3 },
                ctime: Time::EPOCH,
                btime: Time { seconds: i64::MAX, nanos: 0 },
                parent: if kind == 2 { Ino(1) } else { Ino(0) },
                next_cookie: if kind == 2 { 900 } else { 0 },
                cookie_lineage: if kind == 2 { 8 } else { 0 },
                map_generation: 6,
                has_cuts: kind == 1,
                distinct: kind == 2,
                verifier: (kind == 1).then_some(42),
                domain: 7,
                target: if kind == 3 { Bytes::from_static(b"../x") } else { Bytes::new() },
            };
            let mut out = Vec::new();
            inode.encode(&mut out);
            assert_eq!(Inode::decode(&out), Ok(inode));
            assert_eq!(out[Inode::CHANGE_AT..][..8], 0x1122u64.to_le_bytes());
            assert_eq!(out[Inode::GENERATION_AT..][..8], 0x3344u64.to_le_bytes());
            assert!((0..out.len()).all(|len| Inode::decode(&out[..len]).is_err()));
        }
    }
}
