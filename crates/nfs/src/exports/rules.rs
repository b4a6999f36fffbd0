//! Export lists: one rule a line, `CLIENT ro|rw[,OPTION...]`.
//!
//! - The first rule that matches a client decides; a client that none matches is refused.
//! - `secure`, the default, makes a rule match only calls from ports below 1024.
//! - `root_squash` is the default; giving root away must be written down.
//! - `ro` or `rw` must be written down; nobody has to know a default.
//! - Blank lines, and what follows `#`, do not count.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use smallvec::SmallVec;
use tarn_vfs::{Caller, ClientId};

/// Whom squashed identities become unless a rule says otherwise: nobody and nogroup.
pub const ANONYMOUS_ID: u32 = 65_534;
/// First port that anybody may use.
const PORT_FREE_MIN: u16 = 1024;
/// Longest host name (RFC 1035), bytes.
const HOST_SIZE_MAX: usize = 253;

/// The list of a volume without one, where the program listens on loopback only: root of this machine is root;
/// a program without privileges, which may claim to be anybody, is at least not root.
pub const LOOPBACK_DEFAULT: &str = "\
127.0.0.0/8 rw,no_root_squash
::1 rw,no_root_squash
127.0.0.0/8 rw,insecure
::1 rw,insecure
";

/// What is wrong with a list; the operator's to put right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export rule in line {line}: {reason}")]
pub struct RuleError {
    /// Counted from 1.
    pub line: usize,
    pub reason: RuleProblem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleProblem {
    #[error("\"{0}\" has no options; write \"{0} ro\" or \"{0} rw\"")]
    NoOptions(String),
    #[error("options are separated by commas without spaces; \"{0}\" is left over")]
    LeftOver(String),
    #[error("say \"ro\" or \"rw\"")]
    NoAccess,
    #[error("\"{0}\" contradicts \"{1}\"")]
    Contradiction(String, String),
    #[error(
        "\"{0}\" is not an option; there are ro, rw, root_squash, no_root_squash, all_squash, anonuid=N, anongid=N, secure, insecure"
    )]
    UnknownOption(String),
    #[error("\"{0}\" needs a number from 0 to 4294967295")]
    BadNumber(String),
    #[error("\"{0}\" is not a network; write an address with a prefix length, such as 10.0.0.0/8 or fd00::/8")]
    BadNetwork(String),
    #[error("\"{0}\" has bits set beyond its prefix; did you mean {1}?")]
    HostBits(String, IpNet),
    #[error(
        "\"{0}\" is neither an address, nor a network, nor a host name, nor *; netgroups and name patterns are not served"
    )]
    BadClient(String),
}

/// Whom a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Client {
    Anyone,
    Network(IpNet),
    /// In lower case, without a final dot.
    Host(String),
}

/// Whose identities are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Squash {
    None,
    Root,
    All,
}

/// What a matching rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub writable: bool,
    pub squash: Squash,
    pub anon_uid: u32,
    pub anon_gid: u32,
}

impl Grant {
    /// The caller that the file system sees for these ids.
    #[inline]
    pub fn caller(&self, client: ClientId, uid: u32, gid: u32, gids: &[u32]) -> Caller {
        let squash_uid = |id: u32| if id == 0 { self.anon_uid } else { id };
        let squash_gid = |id: u32| if id == 0 { self.anon_gid } else { id };
        let (uid, gid, groups) = match self.squash {
            Squash::None => (uid, gid, SmallVec::from_slice(gids)),
            Squash::Root => (squash_uid(uid), squash_gid(gid), gids.iter().map(|gid| squash_gid(*gid)).collect()),
            Squash::All => (self.anon_uid, self.anon_gid, SmallVec::new()),
        };
        Caller { uid, gid, groups, client, once: None, sent: None, owner_override: false }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    client: Client,
    secure: bool,
    grant: Grant,
}

/// A list of rules; the first that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleSet(Vec<Rule>);

/// What a list says of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed(Grant),
    Denied,
    /// A host name on which it depends is still being looked up.
    Unresolved,
}

impl RuleSet {
    /// What the list says of a call from `address` and `port`. `host_is` says whether a host has an address, or
    /// `None` if that is not known yet.
    pub fn judge(&self, address: IpAddr, port: u16, host_is: impl Fn(&str, IpAddr) -> Option<bool>) -> Verdict {
        for rule in self.0.iter().filter(|rule| !rule.secure || port < PORT_FREE_MIN) {
            let matches = match &rule.client {
                Client::Anyone => Some(true),
                Client::Network(network) => Some(network.contains(&address)),
                Client::Host(host) => host_is(host, address),
            };
            match matches {
                Some(true) => return Verdict::Allowed(rule.grant),
                Some(false) => {}
                None => return Verdict::Unresolved,
            }
        }
        Verdict::Denied
    }

    /// The host names in the list.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|rule| match &rule.client {
            Client::Host(host) => Some(host.as_str()),
            _ => None,
        })
    }

    /// Whom the list is for, as `showmount` shows it; without repeats.
    pub fn clients(&self) -> Vec<String> {
        let mut out: Vec<String> = Vec::new();
        for rule in &self.0 {
            let text = rule.client.to_string();
            if !out.contains(&text) {
                out.push(text);
            }
        }
        out
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromStr for RuleSet {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<RuleSet, RuleError> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                rules.push(parse_rule(line).map_err(|reason| RuleError { line: index + 1, reason })?);
            }
        }
        Ok(RuleSet(rules))
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Client::Anyone => f.write_str("*"),
            Client::Network(network) if network.prefix_len() == network.max_prefix_len() => {
                write!(f, "{}", network.addr())
            }
            Client::Network(network) => write!(f, "{network}"),
            Client::Host(host) => f.write_str(host),
        }
    }
}

fn parse_rule(line: &str) -> Result<Rule, RuleProblem> {
    let mut words = line.split_whitespace();
    let client = words.next().unwrap_or_default();
    let options = words.next().ok_or_else(|| RuleProblem::NoOptions(client.into()))?;
    if let Some(more) = words.next() {
        return Err(RuleProblem::LeftOver(more.into()));
    }
    let client = parse_client(client)?;
    let options = parse_options(options)?;
    let access = options.access.ok_or(RuleProblem::NoAccess)?;
    let grant = Grant {
        writable: access == "rw",
        squash: match options.squash {
            Some("no_root_squash") => Squash::None,
            Some("all_squash") => Squash::All,
            _ => Squash::Root,
        },
        anon_uid: options.anon_uid.unwrap_or(ANONYMOUS_ID),
        anon_gid: options.anon_gid.unwrap_or(ANONYMOUS_ID),
    };
    Ok(Rule { client, secure: options.port != Some("insecure"), grant })
}

fn parse_client(word: &str) -> Result<Client, RuleProblem> {
    if word == "*" {
        return Ok(Client::Anyone);
    }
    if let Ok(address) = word.parse::<IpAddr>() {
        return Ok(Client::Network(address.to_canonical().into()));
    }
    if word.contains('/') {
        let network: IpNet = word.parse().map_err(|_| RuleProblem::BadNetwork(word.into()))?;
        if network.trunc() != network {
            return Err(RuleProblem::HostBits(word.into(), network.trunc()));
        }
        return Ok(Client::Network(network));
    }
    let host = word.strip_suffix('.').unwrap_or(word).to_ascii_lowercase();
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    // What looks like an address and is none is a mistake, not a name.
    let numeric = host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    if host.len() <= HOST_SIZE_MAX && !numeric && host.split('.').all(label) {
        Ok(Client::Host(host))
    } else {
        Err(RuleProblem::BadClient(word.into()))
    }
}

/// Options as they stand, each at most once and not against another.
#[derive(Default)]
struct Options<'a> {
    access: Option<&'a str>,
    squash: Option<&'a str>,
    port: Option<&'a str>,
    anon_uid: Option<u32>,
    anon_gid: Option<u32>,
}

fn parse_options(text: &str) -> Result<Options<'_>, RuleProblem> {
    fn once<'a>(slot: &mut Option<&'a str>, word: &'a str) -> Result<(), RuleProblem> {
        match slot.replace(word) {
            None => Ok(()),
            Some(before) => Err(RuleProblem::Contradiction(word.into(), before.into())),
        }
    }
    fn number(slot: &mut Option<u32>, word: &str, value: &str) -> Result<(), RuleProblem> {
        let value = value.parse().map_err(|_| RuleProblem::BadNumber(word.into()))?;
        match slot.replace(value) {
            None => Ok(()),
            Some(before) => Err(RuleProblem::Contradiction(word.into(), before.to_string())),
        }
    }
    let mut options = Options::default();
    for word in text.split(',') {
        match word {
            "ro" | "rw" => once(&mut options.access, word)?,
            "root_squash" | "no_root_squash" | "all_squash" => once(&mut options.squash, word)?,
            "secure" | "insecure" => once(&mut options.port, word)?,
            _ => match word.split_once('=') {
                Some(("anonuid", value)) => number(&mut options.anon_uid, word, value)?,
                Some(("anongid", value)) => number(&mut options.anon_gid, word, value)?,
                _ => return Err(RuleProblem::UnknownOption(word.into())),
            },
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(text: &str, address: &str, port: u16) -> Verdict {
        let rules: RuleSet = text.parse().unwrap();
        rules.judge(address.parse().unwrap(), port, |host, address| match host {
            "slow.example" => None,
            host => Some(host == "build.example" && address.to_string() == "192.0.2.7"),
        })
    }

    fn allowed(writable: bool, squash: Squash) -> Verdict {
        let (anon_uid, anon_gid) = (ANONYMOUS_ID, ANONYMOUS_ID);
        Verdict::Allowed(Grant { writable, squash, anon_uid, anon_gid })
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let text = "\
            10.1.0.0/16 ro # the lab\n\
            10.0.0.0/8 rw,no_root_squash\n\
            \n\
            fd00::/8 rw,insecure\n\
            build.example rw,all_squash\n";
        assert_eq!(judge(text, "10.1.2.3", 700), allowed(false, Squash::Root));
        assert_eq!(judge(text, "10.2.2.3", 700), allowed(true, Squash::None));
        assert_eq!(judge(text, "10.2.2.3", 1024), Verdict::Denied, "secure is the default");
        assert_eq!(judge(text, "fd12::1", 40_000), allowed(true, Squash::Root));
        assert_eq!(judge(text, "fe80::1", 700), Verdict::Denied);
        assert_eq!(judge(text, "192.0.2.7", 700), allowed(true, Squash::All));
        assert_eq!(judge(text, "192.0.2.8", 700), Verdict::Denied);
        assert_eq!(judge("* ro,insecure", "2001:db8::1", 5000), allowed(false, Squash::Root));
        assert_eq!(judge("", "127.0.0.1", 1), Verdict::Denied);
        assert_eq!(judge("slow.example rw\n* ro", "10.0.0.1", 1), Verdict::Unresolved);
        assert_eq!(judge("* ro\nslow.example rw", "10.0.0.1", 1), allowed(false, Squash::Root));
    }

    #[test]
    fn loopback_gives_root_to_root_only_and_nothing_to_others() {
        assert_eq!(judge(LOOPBACK_DEFAULT, "127.0.0.1", 800), allowed(true, Squash::None));
        assert_eq!(judge(LOOPBACK_DEFAULT, "127.0.0.1", 33_000), allowed(true, Squash::Root));
        assert_eq!(judge(LOOPBACK_DEFAULT, "::1", 33_000), allowed(true, Squash::Root));
        assert_eq!(judge(LOOPBACK_DEFAULT, "10.0.0.1", 800), Verdict::Denied);
    }

    #[test]
    fn squashing_replaces_what_it_says_and_nothing_else() {
        let grant = |squash| Grant { writable: true, squash, anon_uid: 99, anon_gid: 98 };
        let ids = |squash, uid, gid, gids: &[u32]| {
            let caller = grant(squash).caller(ClientId(1), uid, gid, gids);
            (caller.uid, caller.gid, caller.groups.to_vec())
        };
        assert_eq!(ids(Squash::None, 0, 0, &[0, 5]), (0, 0, vec![0, 5]));
        assert_eq!(ids(Squash::Root, 0, 0, &[0, 5]), (99, 98, vec![98, 5]));
        assert_eq!(ids(Squash::Root, 7, 0, &[5]), (7, 98, vec![5]));
        assert_eq!(ids(Squash::All, 7, 8, &[5]), (99, 98, vec![]));
    }

    #[test]
    fn a_mistake_is_named_with_its_line_and_its_remedy() {
        let cases = [
            ("10.0.0.0/8", "line 1: \"10.0.0.0/8\" has no options; write \"10.0.0.0/8 ro\" or \"10.0.0.0/8 rw\""),
            ("* ro\n* root_squash", "line 2: say \"ro\" or \"rw\""),
            ("* ro,rw", "\"rw\" contradicts \"ro\""),
            ("* rw,squash", "\"squash\" is not an option; there are ro, rw,"),
            ("* rw, insecure", "\"insecure\" is left over"),
            ("* rw,anonuid=-1", "\"anonuid=-1\" needs a number"),
            ("10.0.0.1/8 rw", "did you mean 10.0.0.0/8?"),
            ("10.0.0.0/40 rw", "is not a network"),
            ("10.0.0.256 rw", "neither an address"),
            ("@netgroup rw", "neither an address"),
            ("*.example rw", "neither an address"),
        ];
        for (text, expected) in cases {
            let error = text.parse::<RuleSet>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn showmount_sees_each_client_once() {
        let rules: RuleSet = LOOPBACK_DEFAULT.parse().unwrap();
        assert_eq!(rules.clients(), ["127.0.0.0/8", "::1"]);
    }
}
