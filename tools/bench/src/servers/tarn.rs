//! Tarn: a given binary, with everything below the measurement's directory.

use super::{Place, Server};
use crate::Outcome;
use crate::target::Target;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The log is large enough that a measurement's checkpoints come from its age, as they usually do.
const SETTINGS: &str = "[log]\nsize = \"4GiB\"\n";

/// The generator's ports are anybody's, and it must be root.
const RULES: &str = "127.0.0.0/8 rw,no_root_squash,insecure";

/// Another store than the directory beside the log.
pub struct Store {
    /// What `measure.store_shape` says.
    pub shape: &'static str,
    pub directory: PathBuf,
    /// The admin port.
    pub admin: u16,
    /// The caches' part of the settings.
    pub cache: &'static str,
}

/// Starts `tarn serve` on the port, its log, state and objects on the disk of the place.
pub fn start(place: &Place, binary: &Path, port: u16) -> Outcome<Server> {
    serve(place, binary, port, None)
}

/// The same with the objects in `store`.
pub fn start_over(place: &Place, binary: &Path, port: u16, store: &Store) -> Outcome<Server> {
    serve(place, binary, port, Some(store))
}

/// The whole path of a Tarn to start: what is started later looks for a bare name elsewhere.
pub fn program(binary: &Path) -> Outcome<PathBuf> {
    match binary.canonicalize() {
        Ok(path) if path.is_file() => Ok(path),
        _ => Err(format!("{}: there is no such program; --tarn wants the path of a tarn", binary.display())),
    }
}

/// Where the Tarn of a directory keeps its state.
pub fn data(directory: &Path) -> PathBuf {
    directory.join("tarn-data")
}

fn serve(place: &Place, binary: &Path, port: u16, store: Option<&Store>) -> Outcome<Server> {
    let binary = &program(binary)?;
    let settings = place.directory.join("tarn.toml");
    // As many serving threads as it may use cores.
    let cores = if place.core.is_some() { "[nfs]\ncores = 1\n" } else { "" };
    let shape = store
        .map_or_else(String::new, |store| format!("{}[measure]\nstore_shape = \"{}\"\n", store.cache, store.shape));
    std::fs::write(&settings, format!("{SETTINGS}{cores}{shape}"))
        .map_err(|error| format!("{}: {error}", settings.display()))?;
    let (data, address) = (place.text("tarn-data"), format!("127.0.0.1:{port}"));
    let settings = settings.display().to_string();
    let mut arguments = vec!["serve", "--data", &data, "--nfs", &address, "--config", &settings];
    let more = store.map(|store| {
        let directory = store.directory.display();
        (format!("file://{directory}"), place.text("key"), format!("127.0.0.1:{}", store.admin))
    });
    if let Some((url, key, admin)) = &more {
        arguments.extend(["--store", url, "--key-file", key, "--admin", admin]);
    }
    let server = place.start("tarn", binary, &arguments)?;
    let mut target = Target::parse(&format!("Tarn=nfs://{address}/vol"))?;
    target.admin = store.map(|store| store.admin);
    target.own = Some((binary.to_owned(), PathBuf::from(&data)));
    target.durability = "FILE_SYNC, CREATE and COMMIT: in the log, fdatasync; objects in a local directory".to_owned();
    let server = server.ready(target, place)?;
    command(place, binary, &["volume", "set", "vol", "--exports", RULES])?;
    Ok(server)
}

/// Asks the Tarn that runs at the place; what it says.
pub fn command(place: &Place, binary: &Path, words: &[&str]) -> Outcome<String> {
    let output = Command::new(binary).args(words).args(["--data", &place.text("tarn-data")]).output();
    let output = output.map_err(|error| format!("{}: {error}", binary.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("tarn {}: {said}", words.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
