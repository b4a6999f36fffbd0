//! Tokens by which the file system recognises a call that was sent again (engine rule 9).
//!
//! - The client is its address without the port: a client that reconnects is the same client.
//! - The number is the xid. As a client may use an xid again for something else, a digest of procedure, user and
//!   arguments goes with it.
//! - The digest must stay the same in later versions, since outcomes survive restarts.
//! - A WRITE has no token. What names it is lost with the process, and takes its place for its data: they are long.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use tarn_vfs::{ClientId, OnceToken, Sent};

use crate::service::Source;
use crate::wire::nfs3::WriteArgs;

/// The token of a call. `args` are the encoded arguments.
pub fn token(client: ClientId, xid: u32, program: u32, procedure: u32, uid: u32, args: &[u8]) -> OnceToken {
    let mut hasher = SipHasher24::new_with_keys(u64::from(program), u64::from(procedure));
    hasher.write(&uid.to_le_bytes());
    hasher.write(args);
    OnceToken { client, number: u64::from(xid), digest: hasher.finish() }
}

/// How a call with this digest came.
pub fn sent(source: &Source, client: ClientId, xid: u32, digest: u64) -> Option<Sent> {
    // Datagrams are not in order at all.
    if source.connection == 0 {
        return None;
    }
    let mut hasher = SipHasher24::new_with_keys(u64::from(xid), digest);
    hasher.write(&client.0.to_le_bytes());
    Some(Sent { name: hasher.finish(), connection: source.connection, follows: source.follows })
}

/// The digest of a WRITE, without its data.
pub fn write_digest(args: &WriteArgs<'_>) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(args.offset, args.data.len() as u64);
    hasher.write(args.handle);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_call_gives_the_same_token_in_every_version() {
        let sample = token(ClientId(1), 2, 100_003, 8, 0, b"arguments");
        assert_eq!((sample.number, sample.digest), (2, 15_682_053_684_881_750_763));
        for other in [
            token(ClientId(2), 2, 100_003, 8, 0, b"arguments"),
            token(ClientId(1), 3, 100_003, 8, 0, b"arguments"),
            token(ClientId(1), 2, 100_003, 9, 0, b"arguments"),
            token(ClientId(1), 2, 100_003, 8, 1, b"arguments"),
            token(ClientId(1), 2, 100_003, 8, 0, b"argumentS"),
        ] {
            assert_ne!(sample, other);
        }
    }
}
