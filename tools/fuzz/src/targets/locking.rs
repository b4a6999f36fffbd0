//! NLM and NSM: what lock daemons and status monitors of clients send, and where a client is told something.

use bytes::Bytes;
use tarn_nfs::nlm::proto::{PROCEDURES, Range, Request, Status, decode_status, encode_granted, encode_result};
use tarn_nfs::nsm::proto::Notice;
use tarn_nfs::peer::Contact;
use tarn_nfs::service::Transport;

use super::Target;
use super::calls::written;

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("nlm-request", request, request_seeds),
        Target::new("nlm-granted", granted, || vec![encode_granted(b"cookie", true, &range())]),
        Target::new(
            "nlm-status",
            |bytes| decode_status(bytes).is_ok(),
            || vec![written(|w| encode_result(w, b"cookie", Status::Blocked))],
        ),
        Target::new("nsm-notice", notice, || vec![Notice { name: b"client", state: 5 }.encode()]),
        Target::new("peer-contact", contact, contact_seeds),
    ]
}

/// The first byte is the procedure.
fn request(bytes: &[u8]) -> bool {
    let Some((procedure, args)) = bytes.split_first() else { return false };
    let procedure = u32::from(*procedure) % PROCEDURES.len() as u32;
    matches!(Request::decode(procedure, args), Ok(Some(_)))
}

fn range() -> Range {
    Range {
        caller: Bytes::from_static(b"client"),
        handle: Bytes::from_static(&[9; 32]),
        owner: Bytes::from_static(b"7@client"),
        process: 7,
        offset: 16,
        length: 0,
    }
}

fn request_seeds() -> Vec<Vec<u8>> {
    let range = encode_granted(b"", false, &range())[8..].to_vec();
    let procedure = |number: u8, before: &[u32], after: &[u32]| {
        let args = written(|w| {
            w.opaque(b"cookie");
            before.iter().for_each(|value| w.u32(*value));
            w.fixed(&range);
            after.iter().for_each(|value| w.u32(*value));
        });
        [&[number], &args[..]].concat()
    };
    let share = written(|w| {
        for text in [&b"cookie"[..], b"client", &[9; 32], b"owner"] {
            w.opaque(text);
        }
        [1, 2, 0].iter().for_each(|value| w.u32(*value));
    });
    let free = written(|w| {
        w.opaque(b"client");
        w.u32(5);
    });
    vec![
        procedure(1, &[1], &[]),
        procedure(2, &[1, 1], &[0, 5]),
        procedure(3, &[1, 1], &[]),
        procedure(4, &[], &[]),
        procedure(5, &[0], &[]),
        [&[20], &share[..]].concat(),
        [&[21], &share[..]].concat(),
        [&[23], &free[..]].concat(),
    ]
}

fn granted(bytes: &[u8]) -> bool {
    let Ok(Some(Request::Granted(ask))) = Request::decode(5, bytes) else { return false };
    let again = encode_granted(&ask.cookie, ask.exclusive, &ask.range);
    assert_eq!(Request::decode(5, &again), Ok(Some(Request::Granted(ask))));
    true
}

fn notice(bytes: &[u8]) -> bool {
    let Ok(notice) = Notice::decode(bytes) else { return false };
    assert_eq!(Notice::decode(&notice.encode()), Ok(notice));
    true
}

fn contact(bytes: &[u8]) -> bool {
    let Ok(contact) = Contact::decode(bytes) else { return false };
    assert_eq!(Contact::decode(&contact.encode()), Ok(contact));
    true
}

fn contact_seeds() -> Vec<Vec<u8>> {
    let known = Contact {
        client: [10, 0, 0, 7].into(),
        server: Some([0xfd00, 0, 0, 0, 0, 0, 0, 1].into()),
        transport: Transport::Udp,
        state: 5,
    };
    let unknown = Contact { server: None, transport: Transport::Tcp, ..known };
    [known, unknown].map(|contact| contact.encode().to_vec()).to_vec()
}
