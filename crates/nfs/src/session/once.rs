//! Tokens by which the file system recognises a call that was sent again (engine rule 9).
//!
//! - The client is its address without the port: a client that reconnects is the same client.
//! - The number is the xid. As a client may use an xid again for something else, a digest of procedure, user and
//!   arguments goes with it.
//! - The digest must stay the same in later versions, since outcomes survive restarts.
//! - A WRITE has none. Its name is lost with the process, and takes the first and last of its data for all of it.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use tarn_vfs::{ClientId, OnceToken, Sent};

use crate::wire::nfs3::WriteArgs;

/// Bytes at either end of a WRITE's data that its name goes by.
const ENDS: usize = 64;

/// The token of a call. `args` are the encoded arguments.
pub fn token(client: ClientId, xid: u32, program: u32, procedure: u32, uid: u32, args: &[u8]) -> OnceToken {
    let mut hasher = SipHasher24::new_with_keys(u64::from(program), u64::from(procedure));
    hasher.write(&uid.to_le_bytes());
    hasher.write(args);
    OnceToken { client, number: u64::from(xid), digest: hasher.finish() }
}

/// The name of a call whose arguments have this digest.
pub fn sent(client: ClientId, xid: u32, digest: u64) -> Sent {
    let mut hasher = SipHasher24::new_with_keys(u64::from(xid), digest);
    hasher.write_u64(client.0 as u64);
    hasher.write_u64((client.0 >> 64) as u64);
    Sent { client, name: hasher.finish() }
}

/// The digest of a WRITE's arguments.
pub fn write_digest(args: &WriteArgs<'_>) -> u64 {
    let data = args.data;
    let mut hasher = SipHasher24::new_with_keys(args.offset, data.len() as u64);
    hasher.write(args.handle);
    hasher.write_u32(args.stable as u32);
    hasher.write(&data[..data.len().min(ENDS)]);
    hasher.write(&data[data.len().saturating_sub(ENDS)..]);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nfs3::StableHow;

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

    #[test]
    fn a_write_is_another_one_if_anything_of_it_is() {
        let sample = WriteArgs { handle: b"handle", offset: 1, stable: StableHow::Unstable, data: &[1; 200] };
        let name = |xid, args: &WriteArgs<'_>| sent(ClientId(1), xid, write_digest(args));
        let same = name(2, &sample);
        assert_eq!(same, name(2, &sample));
        let (mut first, mut last) = ([1; 200], [1; 200]);
        (first[0], last[199]) = (2, 2);
        for other in [
            WriteArgs { handle: b"Handle", ..sample },
            WriteArgs { offset: 2, ..sample },
            WriteArgs { stable: StableHow::FileSync, ..sample },
            WriteArgs { data: &[1; 201], ..sample },
            WriteArgs { data: &first, ..sample },
            WriteArgs { data: &last, ..sample },
        ] {
            assert_ne!(same, name(2, &other));
        }
        assert_ne!(same, name(3, &sample));
        let elsewhere = ClientId(1 | 1 << 64);
        assert_ne!(same.name, sent(elsewhere, 2, write_digest(&sample)).name, "who has half of the address");
    }
}
