//! Decoders of what the program itself reads, and valid bytes to begin from, for fuzzing.
//!
//! - A judge says whether it takes the bytes for valid; it never panics but when what it took does not survive
//!   encoding.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tarn_base::crypto::Key;

use crate::keys::{Hint, file};
use crate::protocol::{Line, Progress, Request, VolumeChange};

fn json<T: PartialEq + std::fmt::Debug + DeserializeOwned + Serialize>(bytes: &[u8]) -> bool {
    let Ok(value) = serde_json::from_slice::<T>(bytes) else { return false };
    let again = serde_json::to_vec(&value).expect("what was read can be written");
    assert_eq!(serde_json::from_slice::<T>(&again).ok(), Some(value), "a line does not survive encoding");
    true
}

fn written(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these can be written")
}

/// Judges what a command asks over the admin socket.
pub fn admin_request(bytes: &[u8]) -> bool {
    json::<Request>(bytes)
}

/// Valid requests.
pub fn admin_request_samples() -> Vec<Vec<u8>> {
    let change = VolumeChange { size_limit: Some(1 << 40), exports: Some("* rw\n".to_owned()), ..Default::default() };
    let create = Request::CreateVolume { name: "vol".to_owned(), change, uid: 1000, gid: 100 };
    let undelete = Request::UndeleteVolume { name: "a".to_owned(), new_name: "b".to_owned() };
    [Request::Status, create, undelete, Request::Fsck { deep: true }].iter().map(written).collect()
}

/// Judges what a command hears. Numbers in an answer may lose their last bit, so it is not compared.
pub fn admin_line(bytes: &[u8]) -> bool {
    serde_json::from_slice::<Line>(bytes).is_ok()
}

/// Valid lines.
pub fn admin_line_samples() -> Vec<Vec<u8>> {
    let progress = Progress { done: 3, total: 9, unit: "inodes".to_owned() };
    let done = serde_json::json!({ "volumes": [{ "name": "vol", "used_bytes": 1.5, "deleted": null }] });
    [Line::Progress(progress), Line::Done(done), Line::Refused("no".to_owned())].iter().map(written).collect()
}

/// Judges the object that tells of a store's key.
pub fn key_hint(bytes: &[u8]) -> bool {
    let Ok(hint) = Hint::decode(bytes) else { return false };
    hint.fits(&Key::new([3; 32]));
    hint.has_fair_costs();
    json::<Hint>(bytes)
}

/// Hints with and without a wrapped key.
pub fn key_hint_samples() -> Vec<Vec<u8>> {
    let wrapped = "{\"format\":1,\"check\":\"00112233445566778899aabbccddeeff\",\"passphrase\":{\"salt\":\"0011\",\
                   \"memory_kib\":65536,\"passes\":3,\"lanes\":4,\"key\":\"aabb\"}}";
    vec![written(&Hint::of(&Key::new([3; 32]))), wrapped.as_bytes().to_vec()]
}

/// Judges the text of a key file.
pub fn key_file(bytes: &[u8]) -> bool {
    file::decode(bytes).is_some()
}

/// A valid one.
pub fn key_file_samples() -> Vec<Vec<u8>> {
    vec![format!("{}\n", "0f".repeat(32)).into_bytes()]
}
