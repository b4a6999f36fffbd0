//! Clients that append records to files, each durable when it is answered, and a ledger of what was.
//!
//! - A record's bytes follow from seed, client and number. One call is under way for each client, so what is on the server
//!   is what the ledger says, and at most one record more: the one whose answer said no, or never came.
//! - JUKEBOX is waited out and counted; any other refusal ends the test, unless it is the one that was expected.
//! - The ledger lies on the machine of the clients: it survives whatever is done to the server.

use crate::random::{self, Random};
use crate::{Outcome, Server};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tarn_nfsclient::client::How;
use tarn_nfsclient::{Client, Error, Handle, Stable, Status};

#[derive(clap::Args)]
pub struct Write {
    #[command(flatten)]
    server: Server,
    /// Where it is noted what was acknowledged; begun if absent, else gone on with
    #[arg(long)]
    ledger: PathBuf,
    /// What the clients' directories are called, before their number
    #[arg(long, default_value = "ledger")]
    name: String,
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// Bytes of a record
    #[arg(long, default_value_t = 131_072)]
    size: usize,
    /// Bytes a second of all clients together; 0 is as fast as it goes. If nobody was put off, less than nine tenths of
    /// it fails
    #[arg(long, default_value_t = 0)]
    rate: u64,
    #[arg(long)]
    seconds: u64,
    /// The refusal that every client must meet, such as NOSPC; ANY is any
    #[arg(long)]
    until: Option<String>,
    /// Once anybody was refused, nothing that is begun later may be acknowledged, for this many seconds
    #[arg(long, default_value_t = 0)]
    then_never: u64,
    /// Write again what is there already, the same bytes
    #[arg(long)]
    over: bool,
    /// How long one call may be put off or repeated, seconds
    #[arg(long, default_value_t = 60)]
    patience: u64,
    /// What was acknowledged and put off so far is written there every second
    #[arg(long)]
    progress: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Check {
    #[command(flatten)]
    server: Server,
    #[arg(long)]
    ledger: PathBuf,
}

/// Records in one file.
const FILE_RECORDS: u64 = 64;

struct Ledger {
    name: String,
    seed: u64,
    size: usize,
    /// Records of each client that were acknowledged.
    acknowledged: Vec<u64>,
}

impl Ledger {
    fn read(path: &Path) -> Outcome<Ledger> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let bad = || format!("{} is no ledger", path.display());
        let (name, numbers) = text.split_once(' ').ok_or_else(bad)?;
        let numbers: Option<Vec<u64>> = numbers.split_whitespace().map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some([seed, size, acknowledged @ ..]) => Ok(Ledger {
                name: name.to_owned(),
                seed: *seed,
                size: *size as usize,
                acknowledged: acknowledged.to_vec(),
            }),
            _ => Err(bad()),
        }
    }

    fn write(&self, path: &Path) -> Outcome<()> {
        let counts: Vec<String> = self.acknowledged.iter().map(u64::to_string).collect();
        let text = format!("{} {} {} {}\n", self.name, self.seed, self.size, counts.join(" "));
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn directory(&self, client: usize) -> String {
        format!("{}{client}", self.name)
    }

    fn record(&self, client: usize, number: u64) -> Vec<u8> {
        let mixed = self.seed ^ (client as u64) << 48 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random::new(mixed.rotate_left(17)).bytes(self.size)
    }

    fn total(&self) -> u64 {
        self.acknowledged.iter().sum()
    }
}

/// What the clients of one run see together.
struct Run<'a> {
    arguments: &'a Write,
    ledger: &'a Ledger,
    begun: Instant,
    acknowledged: AtomicU64,
    /// What the ledger is to say of each client, however it ends.
    noted: Vec<AtomicU64>,
    put_off: Arc<AtomicU64>,
    /// Milliseconds of the slowest call, being put off included.
    slowest: AtomicU64,
    /// When the first refusal came, milliseconds after the beginning; before it, the greatest number.
    refused: AtomicU64,
}

pub fn write(arguments: &Write) -> Outcome<String> {
    let mut ledger = match arguments.ledger.exists() {
        true => Ledger::read(&arguments.ledger)?,
        false => {
            let acknowledged = vec![0; arguments.clients as usize];
            Ledger { name: arguments.name.clone(), seed: random::seed(), size: arguments.size, acknowledged }
        }
    };
    let run = Run {
        arguments,
        ledger: &ledger,
        begun: Instant::now(),
        acknowledged: AtomicU64::new(0),
        noted: ledger.acknowledged.iter().map(|count| AtomicU64::new(*count)).collect(),
        put_off: Arc::default(),
        slowest: AtomicU64::new(0),
        refused: AtomicU64::new(u64::MAX),
    };
    let ended: Vec<Outcome<Option<String>>> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..ledger.acknowledged.len())
            .map(|number| {
                scope.spawn({
                    let run = &run;
                    move || run.client(number)
                })
            })
            .collect();
        while clients.iter().any(|client| !client.is_finished()) {
            run.tell();
            std::thread::sleep(Duration::from_millis(200));
        }
        let join = |client: std::thread::ScopedJoinHandle<'_, Outcome<Option<String>>>| match client.join() {
            Ok(ended) => ended,
            Err(_) => Err("a client panicked".to_owned()),
        };
        clients.into_iter().map(join).collect()
    });
    run.tell();
    let said = run.said();
    // What is known is noted even if a client failed: it says what must be there.
    let noted = run.noted.iter().map(|count| count.load(Ordering::SeqCst)).collect();
    ledger.acknowledged = noted;
    ledger.write(&arguments.ledger)?;
    let ended = ended.into_iter().collect::<Outcome<Vec<_>>>().map_err(|problem| format!("{problem}; {said}"))?;
    judge(arguments, &ended, &said)
}

/// Whether the clients ended as they should.
fn judge(arguments: &Write, ended: &[Option<String>], said: &str) -> Outcome<String> {
    let mut refusals: Vec<&str> = ended.iter().filter_map(|refusal| refusal.as_deref()).collect();
    let all = refusals.len() == ended.len();
    refusals.sort_unstable();
    refusals.dedup();
    match &arguments.until {
        Some(wanted) if !all => Err(format!("not every client met {wanted}; {said}")),
        Some(_) => Ok(format!("{said}, then {}", refusals.join(" and "))),
        None => Ok(said.to_owned()),
    }
}

impl Run<'_> {
    fn said(&self) -> String {
        let records = self.acknowledged.load(Ordering::SeqCst);
        let rate = (records * self.ledger.size as u64) as f64 / self.begun.elapsed().as_secs_f64() / 1e6;
        let (slowest, put_off) = (self.slowest.load(Ordering::SeqCst), self.put_off.load(Ordering::SeqCst));
        format!("{records} records acknowledged, {rate:.1} MB/s, slowest {slowest} ms, {put_off} times JUKEBOX")
    }

    fn tell(&self) {
        let Some(path) = &self.arguments.progress else { return };
        let (records, put_off) = (self.acknowledged.load(Ordering::SeqCst), self.put_off.load(Ordering::SeqCst));
        // Whole or not at all: somebody reads it meanwhile.
        let next = path.with_extension("next");
        let written =
            std::fs::write(&next, format!("{records} {put_off}\n")).and_then(|()| std::fs::rename(&next, path));
        if let Err(error) = written {
            eprintln!("{}: {error}", path.display());
        }
    }

    /// Works until it is time; what it was refused with, if it was.
    fn client(&self, number: usize) -> Outcome<Option<String>> {
        let arguments = self.arguments;
        let (mut client, root) = arguments.server.connect(number as u32)?;
        client.patience = Duration::from_secs(arguments.patience);
        client.put_off = self.put_off.clone();
        let directory = folder(&mut client, &root, &self.ledger.directory(number))?;
        let before = self.ledger.acknowledged[number];
        let mut file: Option<(u64, Handle)> = None;
        let mut count = 0;
        let mut refusal = None;
        let mut end = self.begun + Duration::from_secs(arguments.seconds);
        loop {
            self.pace(count);
            if Instant::now() >= end || (arguments.over && count == before) {
                break;
            }
            let record = if arguments.over { count } else { before + count };
            let asked = Instant::now();
            let outcome = self.record(&mut client, &directory, &mut file, number, record);
            self.slowest.fetch_max(asked.elapsed().as_millis() as u64, Ordering::SeqCst);
            match outcome {
                Ok(()) => {
                    self.noted[number].fetch_max(record + 1, Ordering::SeqCst);
                    self.not_after_refusal(asked, number)?;
                    count += 1;
                    self.acknowledged.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => {
                    self.refused(&error, number)?;
                    if refusal.is_none() {
                        end = Instant::now() + Duration::from_secs(arguments.then_never);
                    }
                    refusal = Some(error.to_string());
                }
            }
        }
        if arguments.rate > 0 && refusal.is_none() && self.put_off.load(Ordering::SeqCst) == 0 {
            self.fast_enough(count)?;
        }
        Ok(refusal)
    }

    /// Waits until record `count` of this run is due.
    fn pace(&self, count: u64) {
        let bytes = count * self.ledger.size as u64 * self.ledger.acknowledged.len() as u64;
        if let Some(micros) = (bytes * 1_000_000).checked_div(self.arguments.rate) {
            let due = self.begun + Duration::from_micros(micros);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }

    fn fast_enough(&self, count: u64) -> Outcome<()> {
        let bytes = count * self.ledger.size as u64 * self.ledger.acknowledged.len() as u64;
        let wanted = self.arguments.rate * self.arguments.seconds;
        match bytes * 10 >= wanted * 9 {
            true => Ok(()),
            false => Err(format!("the server is too slow for this test: {bytes} bytes instead of {wanted}")),
        }
    }

    fn record(
        &self,
        client: &mut Client,
        directory: &Handle,
        file: &mut Option<(u64, Handle)>,
        number: usize,
        record: u64,
    ) -> Result<(), Error> {
        let (at, within) = (record / FILE_RECORDS, record % FILE_RECORDS);
        if file.as_ref().is_none_or(|(open, _)| *open != at) {
            *file = Some((at, client.create(directory, at.to_string().as_bytes(), How::Unchecked)?));
        }
        let Some((_, handle)) = file.as_ref() else { return Ok(()) };
        let data = self.ledger.record(number, record);
        let written = client.write(handle, within * data.len() as u64, &data, Stable::FileSync)?;
        match written.count as usize == data.len() {
            true => Ok(()),
            false => Err(Error::Protocol("a WRITE took only a part")),
        }
    }

    /// A call that was begun after somebody had been refused for good must not be acknowledged.
    fn not_after_refusal(&self, asked: Instant, number: usize) -> Outcome<()> {
        let asked = asked.saturating_duration_since(self.begun).as_millis() as u64;
        match self.arguments.then_never > 0 && asked > self.refused.load(Ordering::SeqCst) {
            true => Err(format!("client {number}: acknowledged after a refusal that is final")),
            false => Ok(()),
        }
    }

    fn refused(&self, error: &Error, number: usize) -> Outcome<()> {
        let now = self.begun.elapsed().as_millis() as u64;
        self.refused.fetch_min(now, Ordering::SeqCst);
        let expected = self.arguments.until.as_ref();
        match expected.is_some_and(|wanted| wanted == "ANY" || error.to_string().ends_with(&format!("_{wanted}"))) {
            true => Ok(()),
            false => Err(format!("client {number}, {now} ms after the beginning: {error}")),
        }
    }
}

fn folder(client: &mut Client, root: &Handle, name: &str) -> Outcome<Handle> {
    match client.mkdir(root, name.as_bytes(), 0o777) {
        Ok(made) => Ok(made),
        Err(Error::Status(Status::EXIST)) => {
            client.lookup(root, name.as_bytes()).map(|(found, _)| found).map_err(|error| format!("{name}: {error}"))
        }
        // What can be read may be all that is left.
        Err(refused) => {
            client.lookup(root, name.as_bytes()).map(|(found, _)| found).map_err(|_| format!("mkdir {name}: {refused}"))
        }
    }
}

/// Everything acknowledged is there, and at most one record more of each client.
pub fn check(arguments: &Check) -> Outcome<String> {
    let ledger = Ledger::read(&arguments.ledger)?;
    let mut more = 0;
    for client in 0..ledger.acknowledged.len() {
        more += check_client(arguments, &ledger, client).map_err(|problem| format!("client {client}: {problem}"))?;
    }
    Ok(format!("{} acknowledged records are there, and {more} more", ledger.total()))
}

fn check_client(arguments: &Check, ledger: &Ledger, number: usize) -> Outcome<u64> {
    let (mut client, root) = arguments.server.connect(number as u32)?;
    let acknowledged = ledger.acknowledged[number];
    let (directory, _) =
        client.lookup(&root, ledger.directory(number).as_bytes()).map_err(|error| format!("lookup: {error}"))?;
    let entries = client.readdir(&directory).map_err(|error| format!("list: {error}"))?;
    let names: Vec<String> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    // One that was to be begun may be there, with one record.
    let last = acknowledged / FILE_RECORDS;
    let mut there = 0;
    for file in 0..=last {
        if !names.contains(&file.to_string()) {
            if file * FILE_RECORDS < acknowledged {
                return Err(format!("file {file} is lost"));
            }
            continue;
        }
        there += check_file(&mut client, &directory, ledger, number, file)?;
    }
    if let Some(odd) = names.iter().find(|name| name.parse().map_or(true, |file: u64| file > last)) {
        return Err(format!("{odd} is there and was never made"));
    }
    match there {
        there if there < acknowledged => Err(format!("{there} records are there, {acknowledged} were acknowledged")),
        there if there > acknowledged + 1 => {
            Err(format!("{there} records are there, only {acknowledged} were acknowledged"))
        }
        there => Ok(there - acknowledged),
    }
}

fn check_file(client: &mut Client, directory: &Handle, ledger: &Ledger, number: usize, file: u64) -> Outcome<u64> {
    let told = |error: Error| format!("file {file}: {error}");
    let (handle, _) = client.lookup(directory, file.to_string().as_bytes()).map_err(told)?;
    let bytes = client.read_all(&handle).map_err(told)?;
    for (within, record) in bytes.chunks(ledger.size).enumerate() {
        let wanted = ledger.record(number, file * FILE_RECORDS + within as u64);
        if *record != wanted {
            return Err(format!(
                "file {file}: record {within} has {} bytes, and not those that were written",
                record.len()
            ));
        }
    }
    Ok((bytes.len() / ledger.size) as u64)
}

/// Removes each client's last file, and forgets what was in it.
pub fn drop_last(arguments: &Check) -> Outcome<String> {
    let mut ledger = Ledger::read(&arguments.ledger)?;
    let before = ledger.total();
    for number in 0..ledger.acknowledged.len() {
        let Some(last) = ledger.acknowledged[number].checked_sub(1) else { continue };
        let file = last / FILE_RECORDS;
        let (mut client, root) = arguments.server.connect(number as u32)?;
        let told = |error: Error| format!("client {number}, removing file {file}: {error}");
        let (directory, _) = client.lookup(&root, ledger.directory(number).as_bytes()).map_err(told)?;
        client.remove(&directory, file.to_string().as_bytes()).map_err(told)?;
        // Of a full file the next may have been begun, and holds nothing.
        match client.remove(&directory, (file + 1).to_string().as_bytes()) {
            Ok(_) => {}
            Err(Error::Status(Status::NOENT)) => {}
            Err(error) => return Err(told(error)),
        }
        ledger.acknowledged[number] = file * FILE_RECORDS;
    }
    ledger.write(&arguments.ledger)?;
    Ok(format!("{} records removed", before - ledger.total()))
}
