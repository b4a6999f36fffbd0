//! Valid calls of every procedure: what mutation begins with.

use super::honest::Honest;
use crate::random::Random;
use crate::{Outcome, Server};
use tarn_nfsclient::client::How;
use tarn_nfsclient::rpc::Procedure;
use tarn_nfsclient::types::Change;
use tarn_nfsclient::xdr::Writer;
use tarn_nfsclient::{Credentials, Handle, Stable};

/// The user that sends garbage.
pub const USER: u32 = 2000;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NLM: u32 = 100_021;
const PORTMAP: u32 = 100_000;
const NSM: u32 = 100_024;
/// Names in the garbage directory; few, so that calls meet.
const NAMES: u64 = 400;

/// What calls are about.
pub struct Targets {
    /// The sender's own.
    directories: Vec<Handle>,
    files: Vec<Handle>,
    /// The honest user's, and the root of the export.
    foreign: Vec<Handle>,
}

impl Targets {
    pub fn make(server: &Server, honest: &Honest) -> Outcome<Targets> {
        let problem = |error| format!("the garbage directory: {error}");
        let (mut root, top) = server.connect(3)?;
        let directory = root.mkdir(&top, b"garbage", 0o755).map_err(problem)?;
        root.setattr(&directory, Change { uid: Some(USER), gid: Some(USER), ..Change::mode(0o755) })
            .map_err(problem)?;
        let (mut client, _) = server.connect_as(4, Credentials::user(USER))?;
        let below = client.mkdir(&directory, b"below", 0o755).map_err(problem)?;
        let mut files = Vec::new();
        for number in 0..20 {
            let file = client.create(&directory, format!("file{number}").as_bytes(), How::Guarded).map_err(problem)?;
            client.write(&file, 0, &[number; 5000], Stable::FileSync).map_err(problem)?;
            files.push(file);
        }
        let mut foreign = vec![top, honest.directory.clone()];
        foreign.extend(honest.files.iter().take(20).cloned());
        Ok(Targets { directories: vec![directory, below], files, foreign })
    }

    fn pick<'a>(&'a self, own: &'a [Handle], random: &mut Random) -> &'a Handle {
        let from = if random.below(4) == 0 { &self.foreign[..] } else { own };
        &from[random.below(from.len() as u64) as usize]
    }

    /// A valid call of any procedure: which, and its arguments.
    pub fn call(&self, random: &mut Random) -> (Procedure, Vec<u8>) {
        let of = |program, version, number| Procedure { program, version, number };
        match random.below(100) {
            0..66 => {
                let number = random.below(22) as u32;
                (of(NFS, 3, number), self.nfs(number, random).0)
            }
            66..74 => {
                let number = random.below(6) as u32;
                let path = if number == 0 || number == 2 || number >= 4 {
                    Writer::new()
                } else {
                    Writer::new().bytes(b"/vol")
                };
                (of(MOUNT, 3, number), path.0)
            }
            74..92 => {
                let number = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 21, 22, 23][random.below(15) as usize];
                (of(NLM, 4, number), self.nlm(number, random).0)
            }
            92..98 => {
                let (version, number) = (2 + random.below(3) as u32, random.below(13) as u32);
                (of(PORTMAP, version, number), portmap(version, number))
            }
            _ => {
                let number = random.below(7) as u32;
                (of(NSM, 1, number), Writer::new().bytes(b"rawclient").u32(number).0)
            }
        }
    }

    fn name(&self, random: &mut Random) -> Vec<u8> {
        format!("name{}", random.below(NAMES)).into_bytes()
    }

    fn nfs(&self, number: u32, random: &mut Random) -> Writer {
        let directory = self.pick(&self.directories, random).0.clone();
        let file = self.pick(&self.files, random).0.clone();
        let name = self.name(random);
        let entry = Writer::new().bytes(&directory).bytes(&name);
        let offset = random.below(1 << 16);
        match number {
            0 => Writer::new(),
            1 | 5 => Writer::new().bytes(&file),
            2 => {
                let size = Change { size: Some(offset), ..Change::default() };
                size.write(Writer::new().bytes(&file)).bool(false)
            }
            3 | 12 | 13 => entry,
            4 => Writer::new().bytes(&file).u32(0x3f),
            6 => Writer::new().bytes(&file).u64(offset).u32(8192),
            7 => {
                let size = if random.below(4) == 0 { 4096 } else { 100 };
                let data = random.bytes(size);
                let stable = random.below(3) as u32;
                Writer::new().bytes(&file).u64(offset).u32(data.len() as u32).u32(stable).bytes(&data)
            }
            8 if random.below(2) == 0 => entry.u32(2).u64(random.next()),
            8 => Change::mode(0o644).write(entry.u32(random.below(2) as u32)),
            9 => Change::mode(0o755).write(entry),
            10 => Change::default().write(entry).bytes(b"some/target"),
            11 => Change::mode(0o644).write(entry.u32(7)),
            14 => entry.bytes(&self.pick(&self.directories, random).0).bytes(&self.name(random)),
            15 => Writer::new().bytes(&file).bytes(&directory).bytes(&name),
            16 => Writer::new().bytes(&directory).u64(0).u64(0).u32(8192),
            17 => Writer::new().bytes(&directory).u64(0).u64(0).u32(4096).u32(16384),
            18..=20 => Writer::new().bytes(&directory),
            _ => Writer::new().bytes(&file).u64(0).u32(0),
        }
    }

    fn nlm(&self, number: u32, random: &mut Random) -> Writer {
        let file = self.pick(&self.files, random).0.clone();
        let cookie = random.bytes(8);
        let owner = random.below(6).to_be_bytes();
        let name = &b"garbage"[..];
        let (from, length) = (random.below(1000), random.below(1000));
        let range =
            |writer: Writer| writer.bytes(name).bytes(&file).bytes(&owner).u32(owner[7].into()).u64(from).u64(length);
        let exclusive = random.below(2) == 0;
        let begun = Writer::new().bytes(&cookie);
        match number {
            0 => Writer::new(),
            1 | 6 | 5 | 10 => begun.bool(exclusive).with(range),
            // Waiting locks would have to be told to a port that this machine does not serve.
            2 | 7 | 22 => begun.bool(number != 7).bool(exclusive).with(range).bool(false).u32(1),
            3 | 8 => begun.bool(false).bool(exclusive).with(range),
            4 | 9 => begun.with(range),
            20 | 21 => begun.bytes(name).bytes(&file).bytes(&owner).u32(0).u32(1).bool(false),
            _ => Writer::new().bytes(name).u32(1),
        }
    }
}

fn portmap(version: u32, number: u32) -> Vec<u8> {
    match (version, number) {
        (_, 0 | 4) => Vec::new(),
        (2, _) => Writer::new().u32(NFS).u32(3).u32(6).u32(2049).0,
        _ => Writer::new().u32(NFS).u32(3).bytes(b"tcp").bytes(b"127.0.0.1.8.1").bytes(b"").0,
    }
}
