//! The null server: frames and answers NFSv3 with canned attributes, and does nothing else. The floor.
//!
//! - One thread. All calls of one look at the sockets are answered together.
//! - With a log ([`wal`]), what must be durable is written to it, and one fdatasync goes before all answers of that look:
//!   group commit without a second thread, since whatever arrives during a flush shares the next.
//! - It keeps nothing: every name exists, every file holds the content.

mod answer;
mod wal;

use crate::Outcome;
use crate::stream::Stream;
use answer::{Told, answer};
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use wal::Wal;

/// The listener's number among the events; connections count from 1.
const LISTENER: u64 = 0;

struct Server {
    listener: TcpListener,
    epoll: OwnedFd,
    streams: BTreeMap<u64, Stream>,
    next: u64,
    wal: Option<Wal>,
}

/// Serves for ever; a log that fails ends it.
pub fn serve(listen: SocketAddr, wal: Option<&Path>) -> Outcome<()> {
    let wal = wal.map(Wal::open).transpose()?;
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    listener.set_nonblocking(true).map_err(|error| error.to_string())?;
    let failed = |error| format!("epoll: {error}");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
    epoll::add(&epoll, &listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN).map_err(failed)?;
    let mut server = Server { listener, epoll, streams: BTreeMap::new(), next: LISTENER + 1, wal };
    let mut events = Vec::with_capacity(64);
    let mut touched = Vec::with_capacity(64);
    loop {
        match epoll::wait(&server.epoll, spare_capacity(&mut events), None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
        for event in events.drain(..) {
            match event.data.u64() {
                LISTENER => server.accept()?,
                number => {
                    server.read(number)?;
                    touched.push(number);
                }
            }
        }
        server.answer_all(&mut touched)?;
    }
}

impl Server {
    fn accept(&mut self) -> Outcome<()> {
        loop {
            match self.listener.accept() {
                Ok((socket, _)) => {
                    let stream = Stream::new(socket).map_err(|error| error.to_string())?;
                    let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
                    let data = epoll::EventData::new_u64(self.next);
                    epoll::add(&self.epoll, &stream.socket, data, flags).map_err(|error| error.to_string())?;
                    self.streams.insert(self.next, stream);
                    self.next += 1;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(format!("accept: {error}")),
            }
        }
    }

    /// Takes all calls that have come. A connection that ends or makes no sense is dropped.
    fn read(&mut self, number: u64) -> Outcome<()> {
        let Some(stream) = self.streams.get_mut(&number) else { return Ok(()) };
        loop {
            let Ok(more) = stream.fill() else {
                self.streams.remove(&number);
                return Ok(());
            };
            loop {
                match stream.input.next_record() {
                    Ok(None) => break,
                    Ok(Some(record)) => match (answer(record, &mut stream.output), &mut self.wal) {
                        (Some(Told::Durable), Some(wal)) => wal.append(record)?,
                        (Some(_), _) => {}
                        (None, _) => {
                            self.streams.remove(&number);
                            return Ok(());
                        }
                    },
                    Err(_) => {
                        self.streams.remove(&number);
                        return Ok(());
                    }
                }
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn answer_all(&mut self, touched: &mut Vec<u64>) -> Outcome<()> {
        if let Some(wal) = &mut self.wal {
            wal.flush()?;
        }
        for number in touched.drain(..) {
            if let Some(stream) = self.streams.get_mut(&number)
                && !stream.output.is_empty()
                && stream.flush().is_err()
            {
                self.streams.remove(&number);
            }
        }
        Ok(())
    }
}
