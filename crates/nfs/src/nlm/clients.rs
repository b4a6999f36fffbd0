//! How clients are named, and who is meant by a name.
//!
//! - The file system knows a client as `NAME@ADDRESS`: the name it calls itself and the address it called from.
//!   Neither alone tells machines apart that were cloned from one image, or that share an address.
//! - A notice of a restart names whom it concerns by host name, short or in full, or by address; and it comes
//!   from an address. Releasing the locks of the wrong client loses data, releasing none makes others wait, so
//!   in doubt nothing is released at once.

use std::net::IpAddr;

use bytes::Bytes;

/// The file system's name of the client that calls itself `caller` and calls from `address`.
pub fn name(caller: &[u8], address: IpAddr) -> Bytes {
    [caller, b"@", address.to_string().as_bytes()].concat().into()
}

/// The parts of such a name; `None` if another front end made it.
pub fn parts(client: &[u8]) -> Option<(&[u8], IpAddr)> {
    let at = client.iter().rposition(|byte| *byte == b'@')?;
    let address = std::str::from_utf8(&client[at + 1..]).ok()?.parse().ok()?;
    Some((&client[..at], address))
}

/// Whom a notice concerns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concerned {
    /// Certainly these.
    These(Vec<Bytes>),
    /// Perhaps these: they have the name, but were at another address. It is them if nobody is there any more.
    Perhaps(Vec<Bytes>),
}

/// Whom among `known` a notice about `subject` that comes from `source` concerns. Order of `known` is kept.
pub fn concerned<'a>(known: impl IntoIterator<Item = &'a Bytes>, subject: &[u8], source: IpAddr) -> Concerned {
    let (mut here, mut here_named, mut elsewhere) = (Vec::new(), Vec::new(), Vec::new());
    let subject_address = std::str::from_utf8(subject).ok().and_then(|text| text.parse::<IpAddr>().ok());
    for client in known {
        let Some((caller, address)) = parts(client) else { continue };
        let named = subject_address.map_or_else(|| same_host(caller, subject), |subject| subject == address);
        if address == source {
            here.push(client.clone());
            if named {
                here_named.push(client.clone());
            }
        } else if named {
            elsewhere.push(client.clone());
        }
    }
    if !here_named.is_empty() {
        Concerned::These(here_named)
    } else if here.len() == 1 {
        // One client only was ever at this address; it spells its name in two ways.
        Concerned::These(here)
    } else {
        Concerned::Perhaps(elsewhere)
    }
}

/// Whether two host names are one, one of them perhaps without its domain.
fn same_host(a: &[u8], b: &[u8]) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let Some((head, rest)) = long.split_at_checked(short.len()) else { return false };
    let domain = rest.is_empty() || (rest[0] == b'.' && !short.contains(&b'.'));
    !short.is_empty() && head.eq_ignore_ascii_case(short) && domain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(clients: &[&'static str]) -> Vec<Bytes> {
        clients.iter().map(|client| Bytes::from_static(client.as_bytes())).collect()
    }

    fn ask(clients: &[&'static str], subject: &str, source: &str) -> Concerned {
        concerned(&known(clients), subject.as_bytes(), source.parse().unwrap())
    }

    #[test]
    fn a_name_is_taken_apart_as_it_was_made() {
        let made = name(b"a@b", "fd00::7".parse().unwrap());
        assert_eq!(&made[..], b"a@b@fd00::7");
        assert_eq!(parts(&made), Some((&b"a@b"[..], "fd00::7".parse().unwrap())));
        assert_eq!(parts(b"session 7"), None);
        assert_eq!(parts(b"x@y"), None);
    }

    #[test]
    fn a_notice_finds_its_client_however_it_is_spelled() {
        let these = |clients: &[&'static str]| Concerned::These(known(clients));
        let all = ["web@10.0.0.1", "db@10.0.0.2", "other"];
        assert_eq!(ask(&all, "web", "10.0.0.1"), these(&["web@10.0.0.1"]));
        assert_eq!(ask(&all, "WEB.example.org", "10.0.0.1"), these(&["web@10.0.0.1"]));
        assert_eq!(ask(&all, "10.0.0.1", "10.0.0.1"), these(&["web@10.0.0.1"]));
        assert_eq!(ask(&all, "alias", "10.0.0.1"), these(&["web@10.0.0.1"]), "the only client there");
        assert_eq!(ask(&["web.example.org@10.0.0.1"], "web", "10.0.0.1"), these(&["web.example.org@10.0.0.1"]));
    }

    #[test]
    fn clones_and_neighbours_are_told_apart() {
        let clones = ["guest@10.0.0.1", "guest@10.0.0.2"];
        assert_eq!(ask(&clones, "guest", "10.0.0.2"), Concerned::These(known(&["guest@10.0.0.2"])));
        let shared = ["a@10.0.0.9", "b@10.0.0.9"];
        assert_eq!(ask(&shared, "b", "10.0.0.9"), Concerned::These(known(&["b@10.0.0.9"])));
        assert_eq!(ask(&shared, "c", "10.0.0.9"), Concerned::Perhaps(vec![]));
        assert_eq!(ask(&["web1@10.0.0.1"], "web", "10.0.0.7"), Concerned::Perhaps(vec![]));
        assert_eq!(ask(&["a.b@10.0.0.1"], "a.b.c", "10.0.0.7"), Concerned::Perhaps(vec![]), "not a short name");
    }

    #[test]
    fn a_client_that_moved_is_only_suspected() {
        assert_eq!(ask(&["web@10.0.0.1"], "web", "10.0.0.7"), Concerned::Perhaps(known(&["web@10.0.0.1"])));
        assert_eq!(ask(&["web@10.0.0.1"], "", "10.0.0.7"), Concerned::Perhaps(vec![]));
    }
}
