//! The port mapper as a program: portmap 2, rpcbind 3 and 4.
//!
//! - What it lists is what the filer registered before serving; nobody outside changes it: SET and UNSET are
//!   answered with *false*.
//! - Calls are never passed on (CALLIT, BCAST, INDIRECT): that has only ever served to hide a caller.
//! - A program that is there in another version is found: the caller then hears from it which versions it has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use tarn_base::world::World;

use super::proto::{self, Binding, Mapping, Netid};
use crate::service::{CallContext, Program, Progress, Transport};
use crate::wire::rpc::{AcceptStatus, Call};
use crate::wire::xdr::Writer;

/// The owner that listings show.
const OWNER: &[u8] = b"superuser";

/// One program in one version, and where it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registration {
    pub program: u32,
    pub version: u32,
    pub netid: Netid,
    pub address: SocketAddr,
}

/// What listens where.
#[derive(Clone, Debug, Default)]
pub struct Table {
    entries: Vec<Registration>,
}

impl Table {
    pub fn new() -> Table {
        Table::default()
    }

    /// Adds a program that listens on `address`. A socket on `[::]` is taken to serve IPv4 as well.
    pub fn register(&mut self, program: u32, versions: RangeInclusive<u32>, transport: Transport, address: SocketAddr) {
        for version in versions {
            let mut add = |address: SocketAddr| {
                let entry = Registration { program, version, netid: Netid::of(transport, address.ip()), address };
                if !self.entries.contains(&entry) {
                    self.entries.push(entry);
                }
            };
            if address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
                add(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), address.port()));
            }
            add(address);
        }
    }

    pub fn entries(&self) -> &[Registration] {
        &self.entries
    }

    /// `program` in `version`, or in any version, over a transport that `suits`.
    fn find(&self, program: u32, version: u32, suits: impl Fn(Netid) -> bool) -> Option<&Registration> {
        let mut found = self.entries.iter().filter(|entry| entry.program == program && suits(entry.netid)).peekable();
        let any = found.peek().copied();
        found.find(|entry| entry.version == version).or(any)
    }
}

/// The program. One serves port 111 over both transports.
pub struct Portmap {
    table: Table,
    world: World,
}

impl Portmap {
    /// `table` must hold the port mapper itself as well if listings are to show it.
    pub fn new(table: Table, world: World) -> Portmap {
        Portmap { table, world }
    }

    fn version_2(&self, cx: &CallContext<'_>, call: &Call<'_>, reply: &mut Writer) -> Progress {
        match call.procedure {
            0 => {}
            1 | 2 => match Mapping::decode(call.args) {
                Ok(_) => reply.bool(false),
                Err(_) => return Progress::Refused(AcceptStatus::GarbageArguments),
            },
            3 => match Mapping::decode(call.args) {
                Ok(question) => reply.u32(self.port(cx, &question)),
                Err(_) => return Progress::Refused(AcceptStatus::GarbageArguments),
            },
            4 => self.dump_2(reply),
            _ => return Progress::Refused(AcceptStatus::ProcedureUnavailable),
        }
        Progress::now(0)
    }

    fn port(&self, cx: &CallContext<'_>, question: &Mapping) -> u32 {
        // Portmap 2 knows IPv4 only; whoever asks over IPv6 all the same means that.
        let v4 = cx.peer.is_ipv4();
        let suits = |netid: Netid| netid.protocol() == question.protocol && netid.is_v4() == v4;
        self.table.find(question.program, question.version, suits).map_or(0, |entry| u32::from(entry.address.port()))
    }

    fn dump_2(&self, reply: &mut Writer) {
        for entry in self.table.entries.iter().filter(|entry| entry.netid.is_v4()) {
            reply.bool(true);
            let port = u32::from(entry.address.port());
            Mapping { program: entry.program, version: entry.version, protocol: entry.netid.protocol(), port }
                .encode(reply);
        }
        reply.bool(false);
    }

    fn rpcbind(&self, call: &Call<'_>, reply: &mut Writer) -> Progress {
        let binding = |f: &mut dyn FnMut(Binding<'_>)| match Binding::decode(call.args) {
            Ok(binding) => {
                f(binding);
                Progress::now(0)
            }
            Err(_) => Progress::Refused(AcceptStatus::GarbageArguments),
        };
        match (call.version, call.procedure) {
            (_, 0) => Progress::now(0),
            (_, 1 | 2) => binding(&mut |_| reply.bool(false)),
            (_, 3) => binding(&mut |question| reply.opaque(self.address(&question, false).as_bytes())),
            // GETVERSADDR: that version or none.
            (4, 9) => binding(&mut |question| reply.opaque(self.address(&question, true).as_bytes())),
            (_, 4) => {
                self.dump(reply);
                Progress::now(0)
            }
            (_, 6) => {
                reply.u32(self.world.clock.now().seconds as u32);
                Progress::now(0)
            }
            _ => Progress::Refused(AcceptStatus::ProcedureUnavailable),
        }
    }

    /// The universal address of what is asked for, or "".
    fn address(&self, question: &Binding<'_>, exact: bool) -> String {
        let Some(netid) = Netid::parse(question.netid) else { return String::new() };
        let found = self.table.find(question.program, question.version, |candidate| candidate == netid);
        let Some(entry) = found.filter(|entry| !exact || entry.version == question.version) else {
            return String::new();
        };
        let mut address = entry.address;
        if address.ip().is_unspecified() {
            // We listen everywhere; the caller found us where it says.
            let hint = proto::parse_universal(question.address).filter(|hint| hint.is_ipv4() == netid.is_v4());
            address.set_ip(hint.map_or(address.ip(), |hint| hint.ip()));
        }
        proto::universal(address)
    }

    fn dump(&self, reply: &mut Writer) {
        for entry in &self.table.entries {
            reply.bool(true);
            Binding {
                program: entry.program,
                version: entry.version,
                netid: entry.netid.name().as_bytes(),
                address: proto::universal(entry.address).as_bytes(),
                owner: OWNER,
            }
            .encode(reply);
        }
        reply.bool(false);
    }
}

impl Program for Portmap {
    fn number(&self) -> u32 {
        proto::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        2..=4
    }

    fn name(&self) -> &'static str {
        "portmap"
    }

    fn procedures(&self) -> &'static [&'static str] {
        &["NULL", "SET", "UNSET", "GETPORT", "DUMP", "CALLIT", "GETTIME", "", "", "GETVERSADDR"]
    }

    fn call(&self, cx: &CallContext<'_>, call: &Call<'_>, reply: &mut Writer) -> Progress {
        if call.version == 2 { self.version_2(cx, call, reply) } else { self.rpcbind(call, reply) }
    }
}
