//! The agent: waits for a controller, does its part of one run, waits for the next.
//!
//! - One run at a time. Who does not know the token, or speaks another version, is told so and gets nothing else.
//! - It makes one directory inside the one that the controller made, and works in nothing else. The controller takes
//!   both away: an agent whose controller is gone stops its load and leaves the rest alone.
//! - `file://` targets only in or below the directory that the agent's operator has named.

use super::link::{GREETING_MAX, Link, News, SILENCE, read_frame, write_frame};
use super::message::{Answer, Greeting, Order, Shown, VERSION, decode, encode, within};
use super::token::Token;
use crate::Outcome;
use crate::drive::connection::Trouble;
use crate::drive::reactor::Reactor;
use crate::measure::{Meter, cpu, machine};
use crate::workload::definition::Definition;
use crate::workload::generator::{Generator, Part, Window};
use crate::workload::progress::Progress;
use crate::workload::site::{Opening, Seat};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// Where controllers are waited for. The network between must be trusted: the token crosses it as it is
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// The token that controllers must know, the first line of this file [default: drawn and printed]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Also take targets file:// in or below this directory
    #[arg(long, value_name = "DIRECTORY")]
    pub local: Option<PathBuf>,
    /// The core of the load
    #[arg(long, value_name = "CORE")]
    pub pin: Option<usize>,
}

/// Serves until it is ended from outside.
pub fn run(arguments: &Arguments) -> Outcome<()> {
    let token = match &arguments.token_file {
        Some(path) => Token::read(path)?,
        None => Token::draw()?,
    };
    if let Some(core) = arguments.pin {
        cpu::pin(core)?;
    }
    let failed = |error: std::io::Error| format!("{}: {error}", arguments.listen);
    let listener = TcpListener::bind(arguments.listen).map_err(failed)?;
    println!("agent at {}", listener.local_addr().map_err(failed)?);
    if arguments.token_file.is_none() {
        println!("token {}", token.text());
    }
    for socket in listener.incoming() {
        let Ok(socket) = socket else { continue };
        let peer = socket.peer_addr().map_or_else(|_| "?".to_owned(), |peer| peer.to_string());
        match session(socket, &token, arguments.local.as_deref()) {
            Ok(()) => eprintln!("{peer}: the run has ended"),
            Err(reason) => eprintln!("{peer}: {reason}"),
        }
    }
    Ok(())
}

/// One controller, from its greeting to its end.
pub fn session(mut socket: TcpStream, token: &Token, local: Option<&Path>) -> Outcome<()> {
    greet(&mut socket, token)?;
    let (sender, news) = channel();
    let link = Link::new(socket, 0, sender).map_err(|error| error.to_string())?;
    let ended = obey(&link, &news, local).map_err(|reason| match link.gone().load(Ordering::Relaxed) {
        true => "the controller has gone in the midst of a load".to_owned(),
        false => reason,
    });
    if let Err(reason) = &ended {
        let _ = link.send(&encode(&Answer::Failed(reason.clone()))?);
    }
    // What was said last arrives before the connection is closed.
    link.finish();
    while news.recv_timeout(SILENCE).is_ok() {}
    ended
}

/// Exchanges greetings; an error once the other side has been refused.
fn greet(socket: &mut TcpStream, token: &Token) -> Outcome<()> {
    let failed = |error: std::io::Error| format!("greeting: {error}");
    socket.set_read_timeout(Some(SILENCE)).map_err(failed)?;
    socket.set_write_timeout(Some(SILENCE)).map_err(failed)?;
    let said: Greeting = decode(&read_frame(socket, GREETING_MAX).map_err(failed)?)?;
    let mut own = Greeting::new();
    if said.tarn_bench_agent != VERSION {
        let other = said.tarn_bench_agent;
        own.refused = format!(
            "the agent speaks version {VERSION}, the controller {other}; run the same tarn-bench on all machines"
        );
    } else if !token.is(&said.token) {
        "wrong token; give the agent's with --agent-token-file".clone_into(&mut own.refused);
    } else {
        own.machine = machine::describe();
    }
    write_frame(socket, &encode(&own)?).map_err(failed)?;
    if own.refused.is_empty() {
        return Ok(());
    }
    // Who guesses is slow.
    std::thread::sleep(Duration::from_millis(500));
    Err(format!("refused: {}", own.refused))
}

/// The next order and when it came; `None` when the controller has ended.
fn next(news: &Receiver<News>) -> Outcome<Option<(Order, Instant)>> {
    match news.recv() {
        Ok(News { frame: Ok(frame), at, .. }) => Ok(Some((decode(&frame)?, at))),
        _ => Ok(None),
    }
}

fn answer(link: &Link, answer: &Answer) -> Outcome<()> {
    link.send(&encode(answer)?).map_err(|error| format!("the controller: {error}"))
}

fn obey(link: &Link, news: &Receiver<News>, local: Option<&Path>) -> Outcome<()> {
    let open = loop {
        match next(news)? {
            Some((Order::Ping, _)) => answer(link, &Answer::Pong)?,
            Some((Order::Open(open), _)) => break open,
            Some(_) => return Err("ordered before a target was named".to_owned()),
            None => return Ok(()),
        }
    };
    open.check()?;
    may(&open.target, local)?;
    let definition = Definition::parse(&open.definition)?;
    let reactor = Reactor::new()?;
    reactor.stop_by(link.gone());
    let trouble = Rc::new(Trouble::default());
    let patience = Duration::from_secs_f64(open.patience);
    let opening = Opening { url: open.target.clone(), connections: open.connections, patience, pid: None, core: None };
    let seat = Seat::take(&reactor, &opening, (&open.directory, &format!("part{}", open.part)), &trouble)?;
    let mut generator = Generator::new(&reactor, &seat.place, &trouble, &definition);
    generator.part = Part { index: open.part, count: open.parts };
    (generator.seed, generator.raw, generator.progress) = (open.seed, open.raw, Progress::none());
    answer(link, &Answer::Opened { connections: seat.connections as u64, target_rtt_us: seat.rtt_us })?;
    while let Some((order, at)) = next(news)? {
        answer(link, &act(&mut generator, order, at)?)?;
    }
    Ok(())
}

fn act(generator: &mut Generator, order: Order, at: Instant) -> Outcome<Answer> {
    match order {
        Order::Open(_) => Err("a target was named already".to_owned()),
        Order::Ping => Ok(Answer::Pong),
        Order::Make { peak, scale } => {
            within("peak", peak, 0.0, 1e9)?;
            within("scale", scale, 1e-9, 1e6)?;
            generator.make(peak, scale).map(Answer::Made)
        }
        Order::Measure { step, after_us, warm_up, seconds } => {
            within("load", step.load, 0.0, 1e9)?;
            within("warm-up", warm_up, 0.0, 86_400.0)?;
            within("seconds", seconds, 0.001, 86_400.0)?;
            within("time to the beginning", after_us as f64, 0.0, 60e6)?;
            let begin = at + Duration::from_micros(after_us);
            let tally = generator.measure(&step, Window { begin, warm_up, seconds }, Meter::default())?;
            Ok(Answer::Seen(Box::new(Shown::of(&tally))))
        }
    }
}

/// Whether the agent's operator lets controllers load this target.
fn may(target: &str, local: Option<&Path>) -> Outcome<()> {
    let Some(path) = target.strip_prefix("file://") else { return Ok(()) };
    let Some(local) = local else {
        return Err(format!("{target}: this agent loads no directories; start it with --local DIRECTORY"));
    };
    // Links are followed: what counts is where the load would be.
    let resolved = |path: &Path| std::fs::canonicalize(path).map_err(|error| format!("{}: {error}", path.display()));
    let (path, local) = (resolved(Path::new(path))?, resolved(local)?);
    match path.starts_with(&local) {
        true => Ok(()),
        false => Err(format!("{target} is not in {}, which this agent may load", local.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an agent answers to this greeting.
    fn answer_to(greeting: &[u8]) -> (Greeting, Outcome<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut controller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut agent = listener.accept().unwrap().0;
        write_frame(&mut controller, greeting).unwrap();
        let path = std::env::temp_dir().join(format!("tarn-bench-greet-{:?}", std::thread::current().id()));
        std::fs::write(&path, "0123456789abcdef0123").unwrap();
        let ended = greet(&mut agent, &Token::read(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        drop(agent);
        let said = read_frame(&mut controller, GREETING_MAX).map(|frame| decode(&frame).unwrap());
        (said.unwrap_or_default(), ended)
    }

    #[test]
    fn only_who_knows_the_token_and_speaks_the_version_is_let_in() {
        let greeting = |version: u32, token: &str| {
            let token = token.to_owned();
            encode(&Greeting { tarn_bench_agent: version, token, ..Greeting::default() }).unwrap()
        };
        let (said, ended) = answer_to(&greeting(VERSION, "0123456789abcdef0123"));
        assert!(ended.is_ok() && said.refused.is_empty() && !said.machine.is_empty());
        for (version, token, reason) in [
            (VERSION, "0123456789abcdef0124", "wrong token"),
            (VERSION, "", "wrong token"),
            (VERSION + 1, "0123456789abcdef0123", "run the same tarn-bench"),
        ] {
            let (said, ended) = answer_to(&greeting(version, token));
            assert!(ended.is_err() && said.refused.contains(reason), "{}", said.refused);
            assert!(said.machine.is_empty(), "a stranger is told nothing");
        }
        let later = br#"{"tarn_bench_agent":9,"token":"","more":[1,2]}"#;
        assert!(answer_to(later).0.refused.contains("the controller 9"), "later versions may say more");
        assert!(answer_to(b"GET / HTTP/1.0").1.is_err());
    }

    #[test]
    fn directories_are_loaded_where_the_operator_said() {
        let place = std::env::temp_dir();
        let url = |path: &Path| format!("file://{}", path.display());
        assert!(may("nfs://host/vol", None).is_ok());
        assert!(may(&url(&place), None).is_err());
        assert!(may(&url(&place), Some(&place)).is_ok());
        assert!(may(&url(&place.join("..")), Some(&place)).is_err());
        assert!(may(&url(Path::new("/")), Some(&place)).is_err());
    }
}
