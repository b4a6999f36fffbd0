//! The key file: 32 bytes in hexadecimal and a line end, readable by its owner alone.
//!
//! - It appears whole or not at all: written beside, fsynced, then linked to its name, its directory fsynced.
//! - A file that is there is never replaced.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use tarn_base::crypto::Key;
use zeroize::Zeroizing;

use crate::exit::{Outcome, Stop, path_stop};

/// The key in the file at `path`, or none if nothing is there.
pub fn read(path: &Path) -> Outcome<Option<Key>> {
    let unreadable = |reason: &str| Stop::KeyUnreadable { path: path.to_path_buf(), reason: reason.to_owned() };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(&error.to_string())),
    };
    let meta = file.metadata().map_err(|error| unreadable(&error.to_string()))?;
    if !meta.is_file() {
        return Err(unreadable("it is not a regular file"));
    }
    let mode = meta.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(Stop::KeyExposed { path: path.to_path_buf(), mode });
    }
    let mut text = Zeroizing::new(Vec::with_capacity(128));
    (&file).take(128).read_to_end(&mut text).map_err(|error| unreadable(&error.to_string()))?;
    match decode(&text) {
        Some(key) => Ok(Some(key)),
        None => Err(unreadable("it does not hold 64 hexadecimal digits")),
    }
}

/// The key that the text of a file is.
pub(crate) fn decode(text: &[u8]) -> Option<Key> {
    let bytes = Zeroizing::new(data_encoding::HEXLOWER_PERMISSIVE.decode(text.trim_ascii()).unwrap_or_default());
    <[u8; 32]>::try_from(bytes.as_slice()).ok().map(Key::new)
}

/// Makes the file at `path`, durably; [`Stop::KeyPresent`] if something is there.
pub fn create(path: &Path, key: &Key) -> Outcome<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = |error: std::io::Error| match error.kind() {
        ErrorKind::AlreadyExists => Stop::KeyPresent { path: path.to_path_buf() },
        _ => path_stop(path, "--key-file", &error),
    };
    if fs::symlink_metadata(path).is_ok() {
        return Err(Stop::KeyPresent { path: path.to_path_buf() });
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let staging = dir.join(format!(".{name}.{}", std::process::id()));
    let mut text = Zeroizing::new(data_encoding::HEXLOWER.encode(key.expose()));
    text.push('\n');
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&staging)?;
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::hard_link(&staging, path)?;
        fs::remove_file(&staging)?;
        fs::File::open(dir)?.sync_all()
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&staging);
        failed(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_file_is_made_once_and_only_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        assert!(read(&path).unwrap().is_none());
        let key = Key::new([9; 32]);
        create(&path, &key).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(read(&path).unwrap().unwrap().expose(), key.expose());
        assert_eq!(create(&path, &Key::new([1; 32])).unwrap_err().code(), 46);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!(read(&path).unwrap_err().code(), 41);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "tarn").unwrap();
        assert_eq!(read(&path).unwrap_err().code(), 40);
    }
}
