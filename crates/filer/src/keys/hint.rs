//! The key hint: an object that tells whether a key is the right one, and holds the key wrapped under a passphrase.
//!
//! - It is created once, before anything sealed is, and says nothing about the key that helps to find it.
//! - `check` is derived from the master key one way; a passphrase is stretched by Argon2id (RFC 9106) before it wraps.
//! - The wrapping key is of one salt, which is drawn for one wrapping; so its nonce may be zero.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tarn_base::crypto::{Key, NONCE_SIZE};
use tarn_base::world::Random;
use tarn_store::{PutMode, Store, StoreError};
use zeroize::Zeroizing;

use crate::exit::{Outcome, Stop};

/// Name of the object.
pub const NAME: &str = "key-hint";
const FORMAT: u32 = 1;
const AAD: &[u8] = b"tarn passphrase 1";
/// Costs that are paid at most: sixteen times the memory and five times the passes that are written today.
const MEMORY_KIB_MAX: u32 = 1 << 20;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Hint {
    /// 1; a newer program may write more.
    pub format: u32,
    /// 16 bytes derived from the master key, hexadecimal.
    check: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    passphrase: Option<Wrapped>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
struct Wrapped {
    /// 16 random bytes, hexadecimal.
    salt: String,
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    /// The master key and its tag, hexadecimal.
    key: String,
}

impl Hint {
    pub fn of(key: &Key) -> Hint {
        Hint { format: FORMAT, check: check(key), passphrase: None }
    }

    /// As [`Hint::of`], with the key wrapped under `passphrase`.
    pub fn wrapping(key: &Key, passphrase: &str, random: &dyn Random) -> Outcome<Hint> {
        let mut salt = [0u8; 16];
        random.fill(&mut salt);
        // RFC 9106, second recommendation: 64 MiB fit any machine that can serve.
        let mut wrapped = Wrapped { salt: hex(&salt), memory_kib: 64 << 10, passes: 3, lanes: 4, key: String::new() };
        let mut sealed = Vec::new();
        stretch(passphrase, &wrapped)?.cipher().seal_to([0; NONCE_SIZE], AAD, key.expose(), &mut sealed);
        wrapped.key = hex(&sealed);
        Ok(Hint { passphrase: Some(wrapped), ..Hint::of(key) })
    }

    pub fn fits(&self, key: &Key) -> bool {
        self.check == check(key)
    }

    /// The key under `passphrase`.
    pub fn unwrap(&self, passphrase: &str) -> Outcome<Key> {
        let Some(wrapped) = &self.passphrase else { return Err(Stop::PassphraseUnknown) };
        let sealed = data_encoding::HEXLOWER.decode(wrapped.key.as_bytes()).unwrap_or_default();
        let wrong = || Stop::KeyWrong { source_of_key: "TARN_PASSPHRASE".to_owned() };
        let plain = stretch(passphrase, wrapped)?.cipher().open([0; NONCE_SIZE], AAD, &sealed).map_err(|_| wrong())?;
        let plain = Zeroizing::new(plain);
        <[u8; 32]>::try_from(plain.as_slice()).map(Key::new).map_err(|_| wrong())
    }

    /// The hint that an object is, of whatever format: what stands behind the number 1 is read only if it is that.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Hint, serde_json::Error> {
        serde_json::from_slice(bytes)
    }

    /// Whether the costs of unwrapping are such that somebody would pay them.
    pub(crate) fn has_fair_costs(&self) -> bool {
        self.passphrase.as_ref().is_some_and(|wrapped| costs(wrapped).is_ok())
    }

    /// The hint in `store`, called `shown`; none if there is none.
    pub async fn read(store: &dyn Store, shown: &str) -> Outcome<Option<Hint>> {
        let failed = |reason: String| Stop::StoreFailed { url: shown.to_owned(), reason };
        let bytes = match store.get(NAME).await {
            Ok((bytes, _)) => bytes,
            Err(StoreError::NotFound(_)) => return Ok(None),
            Err(error) => return Err(failed(error.to_string())),
        };
        let hint = Hint::decode(&bytes)
            .map_err(|error| failed(format!("object {NAME} is damaged ({error}); restore it, or remove it")))?;
        if hint.format > FORMAT {
            return Err(Stop::NewerFormat { path: format!("{shown}/{NAME}").into(), found: hint.format.to_string() });
        }
        Ok(Some(hint))
    }

    /// Writes the hint where there is none; whoever was faster must have meant the same key.
    pub async fn create(&self, store: &dyn Store, shown: &str) -> Outcome<()> {
        let failed = |reason: String| Stop::StoreFailed { url: shown.to_owned(), reason };
        let bytes = serde_json::to_vec_pretty(self).map_err(|error| Stop::Internal(error.to_string()))?;
        match store.put(NAME, Bytes::from(bytes), PutMode::Create).await {
            Ok(_) => Ok(()),
            Err(StoreError::Exists(_) | StoreError::Unknown(_)) => match Hint::read(store, shown).await? {
                Some(there) if there.check == self.check => Ok(()),
                _ => Err(failed("another program creates it at this moment".to_owned())),
            },
            Err(error) => Err(failed(error.to_string())),
        }
    }
}

fn check(key: &Key) -> String {
    hex(&key.derive(b"tarn", &[b"key hint check"]).expose()[..16])
}

fn hex(bytes: &[u8]) -> String {
    data_encoding::HEXLOWER.encode(bytes)
}

/// Salt and costs; they come from the store, so they are bounded before anything is paid.
fn costs(wrapped: &Wrapped) -> Outcome<(Vec<u8>, argon2::Params)> {
    let wrong = |reason: String| Stop::OpenFailed(format!("object {NAME} is damaged ({reason}); restore it"));
    let salt = data_encoding::HEXLOWER.decode(wrapped.salt.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    if wrapped.memory_kib > MEMORY_KIB_MAX || wrapped.passes > PASSES_MAX || wrapped.lanes > LANES_MAX {
        return Err(wrong("its costs are out of range".to_owned()));
    }
    let params = argon2::Params::new(wrapped.memory_kib, wrapped.passes, wrapped.lanes, Some(32));
    Ok((salt, params.map_err(|error| wrong(error.to_string()))?))
}

/// The wrapping key of `passphrase`.
fn stretch(passphrase: &str, wrapped: &Wrapped) -> Outcome<Key> {
    let (salt, params) = costs(wrapped)?;
    let hasher = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    let mut out = Zeroizing::new([0u8; 32]);
    let done = hasher.hash_password_into(passphrase.as_bytes(), &salt, out.as_mut_slice());
    done.map_err(|error| Stop::OpenFailed(format!("object {NAME} is damaged ({error}); restore it")))?;
    Ok(Key::new(*out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::KernelRandom;

    #[test]
    fn a_passphrase_gives_the_key_back_and_another_one_does_not() {
        let key = Key::new([3; 32]);
        let hint = Hint::wrapping(&key, "mountain lake", &KernelRandom).unwrap();
        let text = serde_json::to_string(&hint).unwrap();
        let hint: Hint = serde_json::from_str(&text).unwrap();
        assert_eq!(hint.unwrap("mountain lake").unwrap().expose(), key.expose());
        assert_eq!(hint.unwrap("mountain lakes").unwrap_err().code(), 42);
        assert!(hint.fits(&key) && !hint.fits(&Key::new([4; 32])));
        assert_eq!(Hint::of(&key).unwrap("mountain lake").unwrap_err().code(), 47);
        assert!(!text.contains(&hex(key.expose())));
    }

    #[test]
    fn costs_that_would_stop_the_machine_are_refused() {
        let mut hint = Hint::wrapping(&Key::new([3; 32]), "x", &KernelRandom).unwrap();
        hint.passphrase.as_mut().unwrap().memory_kib = u32::MAX;
        assert_eq!(hint.unwrap("x").unwrap_err().code(), 54);
    }
}
