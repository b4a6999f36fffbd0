//! The honest client: one call at a time over files of its own, every answer held against what must be there.

use crate::random::Random;
use crate::{Outcome, Server};
use std::fmt;
use std::time::{Duration, Instant};
use tarn_nfsclient::client::How;
use tarn_nfsclient::types::Change;
use tarn_nfsclient::{Client, Credentials, Handle, Stable};

/// The honest user.
pub const USER: u32 = 1000;
const FILES: usize = 200;
/// Bytes of a file.
const SIZE: usize = 16 << 10;
/// Between two calls, so that what is measured is how long they take and not how many fit.
const PAUSE: Duration = Duration::from_millis(2);

pub struct Honest {
    client: Client,
    random: Random,
    pub directory: Handle,
    pub files: Vec<Handle>,
    contents: Vec<Vec<u8>>,
}

/// How long calls took.
pub struct Measured {
    pub calls: usize,
    pub median: Duration,
    pub p99: Duration,
    pub slowest: Duration,
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |span: Duration| span.as_secs_f64() * 1000.0;
        let (median, p99, slowest) = (ms(self.median), ms(self.p99), ms(self.slowest));
        write!(f, "{} calls, median {median:.2} ms, p99 {p99:.2} ms, slowest {slowest:.1} ms", self.calls)
    }
}

fn name(file: usize) -> Vec<u8> {
    format!("file{file:03}").into_bytes()
}

impl Honest {
    /// Makes a directory that only the honest user may enter, and fills it.
    pub fn begin(server: &Server, seed: u64) -> Outcome<Honest> {
        let (mut root, top) = server.connect(1)?;
        let problem = |error| format!("the honest directory: {error}");
        let directory = root.mkdir(&top, b"honest", 0o700).map_err(problem)?;
        root.setattr(&directory, Change { uid: Some(USER), gid: Some(USER), ..Change::mode(0o700) })
            .map_err(problem)?;
        let (mut client, _) = server.connect_as(2, Credentials::user(USER))?;
        let mut random = Random::new(seed);
        let (mut files, mut contents) = (Vec::new(), Vec::new());
        for file in 0..FILES {
            let content = random.bytes(SIZE);
            let handle = client.create(&directory, &name(file), How::Guarded).map_err(problem)?;
            client.write(&handle, 0, &content, Stable::FileSync).map_err(problem)?;
            files.push(handle);
            contents.push(content);
        }
        Ok(Honest { client, random, directory, files, contents })
    }

    /// Works for so long.
    pub fn work(&mut self, span: Duration) -> Outcome<Measured> {
        let (began, mut took) = (Instant::now(), Vec::new());
        while began.elapsed() < span {
            let called = Instant::now();
            self.call()?;
            took.push(called.elapsed());
            std::thread::sleep(PAUSE);
        }
        took.sort_unstable();
        let at = |part: usize| took.get(took.len() * part / 1000).or(took.last()).copied().unwrap_or_default();
        Ok(Measured { calls: took.len(), median: at(500), p99: at(990), slowest: at(1000) })
    }

    fn call(&mut self) -> Outcome<()> {
        let file = self.random.below(FILES as u64) as usize;
        let problem = |error| format!("honest {}: {error}", String::from_utf8_lossy(&name(file)));
        match self.random.below(100) {
            0..30 => {
                let attributes = self.client.getattr(&self.files[file]).map_err(problem)?;
                // Not the number of links: whoever has a file's handle may give it another name, in a directory of his own.
                let facts = (attributes.size, attributes.uid, attributes.mode & 0o7777);
                if facts != (SIZE as u64, USER, 0o644) {
                    return Err(format!("honest file {file}: its attributes are {attributes:?}"));
                }
            }
            30..45 => {
                let (found, _) = self.client.lookup(&self.directory, &name(file)).map_err(problem)?;
                if found != self.files[file] {
                    return Err(format!("honest file {file}: its name leads elsewhere"));
                }
            }
            45..75 => self.read(file)?,
            75..99 => {
                let at = self.random.below((SIZE - 4096) as u64) as usize;
                let data = self.random.bytes(4096);
                self.client.write(&self.files[file], at as u64, &data, Stable::FileSync).map_err(problem)?;
                self.contents[file][at..at + 4096].copy_from_slice(&data);
            }
            _ => self.list()?,
        }
        Ok(())
    }

    fn read(&mut self, file: usize) -> Outcome<()> {
        let data = self.client.read(&self.files[file], 0, SIZE as u32);
        let data = data.map_err(|error| format!("honest file {file}: {error}"))?;
        if data.bytes == self.contents[file] { Ok(()) } else { Err(format!("honest file {file}: OTHER BYTES")) }
    }

    fn list(&mut self) -> Outcome<()> {
        let listed = self.client.readdir(&self.directory).map_err(|error| format!("the honest directory: {error}"))?;
        let mut names: Vec<Vec<u8>> = listed.into_iter().map(|entry| entry.name).collect();
        names.sort();
        let right = names.len() == FILES && names.iter().enumerate().all(|(file, found)| *found == name(file));
        if right { Ok(()) } else { Err("the honest directory: other names".to_owned()) }
    }

    /// Compares everything.
    pub fn verify(&mut self) -> Outcome<()> {
        self.list()?;
        (0..FILES).try_for_each(|file| self.read(file))
    }
}
