//! The master key: where it comes from, how it is kept, how it comes back.
//!
//! - Finding a key changes nothing; [`Found::settle`] makes what is to be made, once everything else is known to go.
//! - A key that does not fit the store is refused before anything is opened with it.
//! - A key is made up only for a new store, and for one outside the data directory only if the operator said
//!   where it shall be kept.

pub mod code;
pub mod file;
mod hint;

use std::path::PathBuf;

use tarn_base::crypto::Key;
use tarn_base::world::Random;
use tarn_store::Store;
use zeroize::Zeroizing;

pub use hint::Hint;

use crate::config::Settings;
use crate::exit::{Outcome, Stop};

/// Secrets that come by environment, because command lines and configuration files are read by others.
#[derive(Default)]
pub struct Secrets {
    pub passphrase: Option<Zeroizing<String>>,
    pub recovery_code: Option<Zeroizing<String>>,
}

impl Secrets {
    /// TARN_PASSPHRASE and TARN_RECOVERY_CODE; empty is the same as absent.
    pub fn from_environment() -> Secrets {
        let take = |name| std::env::var(name).ok().filter(|text| !text.is_empty()).map(Zeroizing::new);
        Secrets { passphrase: take("TARN_PASSPHRASE"), recovery_code: take("TARN_RECOVERY_CODE") }
    }
}

/// A key and what is still to be made so that the next start finds it.
#[derive(Debug)]
pub struct Found {
    pub key: Key,
    /// In words, for messages.
    pub source: String,
    /// The key was made up just now.
    pub made: bool,
    /// Where the key is to be written.
    file: Option<PathBuf>,
    /// What the store is to hold.
    hint: Option<Hint>,
}

impl Found {
    /// Writes key file and hint where they are missing.
    pub async fn settle(&self, store: &dyn Store, shown: &str) -> Outcome<()> {
        if let Some(path) = &self.file {
            file::create(path, &self.key)?;
        }
        match &self.hint {
            Some(hint) => hint.create(store, shown).await,
            None => Ok(()),
        }
    }
}

/// What a store says about itself before it is opened.
#[derive(Debug)]
pub struct StoreState {
    pub hint: Option<Hint>,
    /// Whether anything of Tarn's is in it.
    pub holds_data: bool,
}

/// The key for the store of `settings`, which is in `state`.
pub fn find(settings: &Settings, secrets: &Secrets, state: &StoreState, random: &dyn Random) -> Outcome<Found> {
    let path = settings.key_path();
    let present = file::read(&path)?;
    let fresh = !state.holds_data && state.hint.is_none();
    let mut made = false;
    let (key, source, file) = if let Some(text) = &secrets.recovery_code {
        let key = code::decode(text)?;
        if present.as_ref().is_some_and(|there| there.expose() != key.expose()) {
            return Err(Stop::KeyPresent { path });
        }
        (key, "TARN_RECOVERY_CODE".to_owned(), present.is_none().then_some(path))
    } else if let Some(passphrase) = &secrets.passphrase {
        return by_passphrase(passphrase, state, fresh, random);
    } else if let Some(key) = present {
        (key, path.display().to_string(), None)
    } else if !fresh {
        return Err(Stop::KeyMissing { store: settings.store.show(), path });
    } else if settings.store.is_embedded || settings.key_file.is_some() {
        made = true;
        (make(random), path.display().to_string(), Some(path))
    } else {
        return Err(Stop::KeyNeeded { store: settings.store.show() });
    };
    check(Found { hint: state.hint.is_none().then(|| Hint::of(&key)), key, source, made, file }, state)
}

fn by_passphrase(passphrase: &str, state: &StoreState, fresh: bool, random: &dyn Random) -> Outcome<Found> {
    let source = "TARN_PASSPHRASE".to_owned();
    match &state.hint {
        Some(hint) => {
            check(Found { key: hint.unwrap(passphrase)?, source, made: false, file: None, hint: None }, state)
        }
        None if fresh => {
            let key = make(random);
            let hint = Some(Hint::wrapping(&key, passphrase, random)?);
            Ok(Found { key, source, made: true, file: None, hint })
        }
        None => Err(Stop::PassphraseUnknown),
    }
}

fn check(found: Found, state: &StoreState) -> Outcome<Found> {
    match &state.hint {
        Some(hint) if !hint.fits(&found.key) => Err(Stop::KeyWrong { source_of_key: found.source }),
        _ => Ok(found),
    }
}

fn make(random: &dyn Random) -> Key {
    let mut bytes = Zeroizing::new([0u8; 32]);
    random.fill(bytes.as_mut_slice());
    Key::new(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{File, Flags};
    use crate::world::KernelRandom;

    fn settings(dir: &std::path::Path, store: Option<&str>, key_file: bool) -> Settings {
        let flags = Flags {
            data: Some(dir.join("data")),
            store: store.map(str::to_owned),
            key_file: key_file.then(|| dir.join("key")),
            ..Flags::default()
        };
        std::fs::create_dir_all(dir.join("data")).unwrap();
        Settings::join(&flags, &File::default(), 1 << 30).unwrap()
    }

    fn new() -> StoreState {
        StoreState { hint: None, holds_data: false }
    }

    fn code_of(result: Outcome<Found>) -> u8 {
        result.unwrap_err().code()
    }

    #[test]
    fn a_new_store_gets_a_key_only_where_somebody_will_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let none = Secrets::default();
        assert!(find(&settings(dir.path(), None, false), &none, &new(), &KernelRandom).unwrap().file.is_some());
        let elsewhere = Some("file:///elsewhere");
        assert_eq!(code_of(find(&settings(dir.path(), elsewhere, false), &none, &new(), &KernelRandom)), 43);
        assert!(find(&settings(dir.path(), elsewhere, true), &none, &new(), &KernelRandom).is_ok());
        let secrets = Secrets { passphrase: Some(Zeroizing::new("p".into())), recovery_code: None };
        let found = find(&settings(dir.path(), elsewhere, false), &secrets, &new(), &KernelRandom).unwrap();
        assert!(found.file.is_none() && found.hint.is_some());
        let state = StoreState { hint: found.hint.clone(), holds_data: true };
        let again = find(&settings(dir.path(), elsewhere, false), &secrets, &state, &KernelRandom).unwrap();
        assert_eq!(again.key.expose(), found.key.expose());
    }

    #[test]
    fn a_store_with_data_takes_its_own_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let key = Key::new([8; 32]);
        let state = StoreState { hint: Some(Hint::of(&key)), holds_data: true };
        let settings = settings(dir.path(), None, false);
        let none = Secrets::default();
        assert_eq!(code_of(find(&settings, &none, &state, &KernelRandom)), 44);
        let secrets = Secrets { recovery_code: Some(Zeroizing::new(code::encode(&key))), passphrase: None };
        assert!(find(&settings, &secrets, &state, &KernelRandom).unwrap().file.is_some());
        file::create(&settings.key_path(), &Key::new([7; 32])).unwrap();
        assert_eq!(code_of(find(&settings, &none, &state, &KernelRandom)), 42);
        assert_eq!(code_of(find(&settings, &secrets, &state, &KernelRandom)), 46);
        let secrets = Secrets { passphrase: Some(Zeroizing::new("p".into())), recovery_code: None };
        assert_eq!(code_of(find(&settings, &secrets, &state, &KernelRandom)), 47);
    }
}
