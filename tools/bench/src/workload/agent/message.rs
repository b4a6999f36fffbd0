//! What a controller and an agent say to each other: JSON, one message a frame.
//!
//! - The greeting names a version; different versions refuse each other before anything else is understood.
//! - Unknown keys are errors: both sides are of one version.
//! - Numbers from the other side are bounded here, before anybody computes with them.

use crate::Outcome;
use crate::workload::definition::Kind;
use crate::workload::generator::{Made, ONCE_MAX, Step, Tally};
use crate::workload::record::Seen;
use crate::workload::site::DIRECTORY;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Of what follows the greetings. Raised with every change of a message or of what is meant by it.
pub const VERSION: u32 = 1;

/// The first message of each side. Later versions may add to it and take nothing away.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Greeting {
    /// Of the agents' messages.
    pub tarn_bench_agent: u32,
    /// The controller's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub token: String,
    /// Why an agent will not; empty: it will.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub refused: String,
    /// The agent's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
}

impl Greeting {
    pub fn new() -> Greeting {
        Greeting { tarn_bench_agent: VERSION, ..Greeting::default() }
    }
}

/// From the controller.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    Open(Open),
    Ping,
    Make {
        peak: f64,
        scale: f64,
    },
    /// A cell that begins so many microseconds after this has come.
    Measure {
        step: Step,
        after_us: u64,
        warm_up: f64,
        seconds: f64,
    },
}

/// What an agent is to work on.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    pub target: String,
    /// What the controller made there; the agent makes a directory of its own in it.
    pub directory: String,
    pub part: usize,
    pub parts: usize,
    /// The workload's file.
    pub definition: String,
    pub connections: usize,
    pub patience: f64,
    pub seed: u64,
    pub raw: bool,
}

/// From an agent.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    Opened { connections: u64, target_rtt_us: f64 },
    Pong,
    Made(Made),
    Seen(Box<Shown>),
    Failed(String),
}

/// A [`Tally`] as it is sent.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Shown {
    operations: Vec<Operation>,
    seconds: f64,
    lateness_us: f64,
    histogram_off: Option<f64>,
    generator_cpu_s: f64,
    reopened: u64,
    jukebox: u64,
    verifiers: u64,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Operation {
    component: usize,
    kind: Kind,
    read: u64,
    written: u64,
    /// Nanoseconds and how often, of a histogram's steps that are not empty: nothing is lost where bounds are the same.
    latency: Vec<(u64, u64)>,
}

impl Shown {
    pub fn of(tally: &Tally) -> Shown {
        let operation = |((component, kind), seen): (&(usize, Kind), &Seen)| Operation {
            component: *component,
            kind: *kind,
            read: seen.read,
            written: seen.written,
            latency: seen
                .latency
                .iter_recorded()
                .map(|step| (step.value_iterated_to(), step.count_at_value()))
                .collect(),
        };
        Shown {
            operations: tally.seen.iter().map(operation).collect(),
            seconds: tally.seconds,
            lateness_us: tally.lateness_us,
            histogram_off: tally.histogram_off,
            generator_cpu_s: tally.generator_cpu_s,
            reopened: tally.reopened,
            jukebox: tally.jukebox,
            verifiers: tally.verifiers,
        }
    }

    /// Refuses what no generator sees.
    pub fn tally(self) -> Outcome<Tally> {
        let off = self.histogram_off.unwrap_or(0.0);
        for (value, most) in
            [(self.seconds, ONCE_MAX + 86_400.0), (self.lateness_us, 1e12), (off, 1e12), (self.generator_cpu_s, 1e9)]
        {
            if !(0.0..=most).contains(&value) {
                return Err(format!("an agent says {value} where at most {most} can be"));
            }
        }
        let mut tally = Tally {
            seen: Default::default(),
            seconds: self.seconds,
            lateness_us: self.lateness_us,
            histogram_off: self.histogram_off,
            generator_cpu_s: self.generator_cpu_s,
            server_cpu_s: None,
            reopened: self.reopened,
            jukebox: self.jukebox,
            verifiers: self.verifiers,
        };
        for operation in self.operations {
            let seen = tally.seen.entry((operation.component, operation.kind)).or_default();
            seen.read = seen.read.saturating_add(operation.read);
            seen.written = seen.written.saturating_add(operation.written);
            for (value, count) in operation.latency {
                seen.latency.saturating_record_n(value, count);
            }
        }
        Ok(tally)
    }
}

impl Open {
    /// Whether an agent may take it: it works in a run's directory and nowhere else.
    pub fn check(&self) -> Outcome<()> {
        let rest = self.directory.strip_prefix(DIRECTORY).unwrap_or_default();
        if rest.is_empty() || !rest.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-') {
            return Err(format!("{} is no run's directory", self.directory));
        }
        if self.part >= self.parts {
            return Err(format!("part {} of {}", self.part, self.parts));
        }
        within("parts", self.parts as f64, 1.0, 1024.0)?;
        within("connections", self.connections as f64, 1.0, 4096.0)?;
        within("patience", self.patience, 0.0, 86_400.0)
    }
}

/// An error that names what is out of its bounds.
pub fn within(name: &str, value: f64, least: f64, most: f64) -> Outcome<()> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(format!("{name} is from {least} to {most}, not {value}")) }
}

pub fn encode(message: &impl Serialize) -> Outcome<Vec<u8>> {
    serde_json::to_vec(message).map_err(|error| error.to_string())
}

pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Outcome<T> {
    serde_json::from_slice(frame).map_err(|error| format!("not understood: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally() -> Tally {
        let mut seen = Seen::new();
        for value in 1..=50_000_u64 {
            seen.latency.saturating_record(value * value);
        }
        (seen.read, seen.written) = (7, 9);
        Tally {
            seen: [((3, Kind::ReadFile), seen)].into(),
            seconds: 2.0,
            lateness_us: 11.0,
            histogram_off: Some(0.1),
            generator_cpu_s: 1.5,
            server_cpu_s: None,
            reopened: 1,
            jukebox: 2,
            verifiers: 3,
        }
    }

    #[test]
    fn a_tally_arrives_as_it_was_and_adds_up() {
        let sent = tally();
        let said: Shown = decode(&encode(&Shown::of(&sent)).unwrap()).unwrap();
        let mut came = said.tally().unwrap();
        let key = (3, Kind::ReadFile);
        assert_eq!(came.seen[&key].latency, sent.seen[&key].latency, "step by step");
        assert_eq!(came.seen[&key].latency.mean(), sent.seen[&key].latency.mean());
        came.add(tally());
        let mut twice = sent.seen[&key].latency.clone();
        twice.add(&sent.seen[&key].latency).unwrap();
        assert_eq!(came.seen[&key].latency, twice);
        assert_eq!((came.seen[&key].read, came.reopened, came.seconds, came.generator_cpu_s), (14, 2, 2.0, 3.0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let spoiled = |spoil: fn(&mut Shown)| {
            let mut shown = Shown::of(&tally());
            spoil(&mut shown);
            shown.tally()
        };
        assert!(spoiled(|shown| shown.seconds = -1.0).is_err());
        assert!(spoiled(|shown| shown.generator_cpu_s = f64::NAN).is_err());
        assert!(spoiled(|shown| shown.operations[0].latency = vec![(u64::MAX, u64::MAX); 3]).is_ok(), "saturates");
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in ["", "{", "null", "{\"open\":{}}", "{\"Seen\":1}", &deep] {
            assert!(decode::<Order>(text.as_bytes()).is_err(), "{text}");
            assert!(decode::<Answer>(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn an_agent_works_in_a_runs_directory_only() {
        let open = |directory: &str, part, parts| Open {
            target: "nfs://a/b".to_owned(),
            directory: directory.to_owned(),
            part,
            parts,
            definition: String::new(),
            connections: 8,
            patience: 1.0,
            seed: 1,
            raw: false,
        };
        assert!(open("tarn-bench-1f-2e", 0, 2).check().is_ok());
        for directory in ["", "tarn-bench-", "..", "tarn-bench-../x", "tarn-bench-1/..", "other", "/tarn-bench-1"] {
            assert!(open(directory, 0, 2).check().is_err(), "{directory}");
        }
        assert!(open("tarn-bench-1", 2, 2).check().is_err());
        assert!(open("tarn-bench-1", 0, 0).check().is_err());
        assert!(Open { connections: 0, ..open("tarn-bench-1", 0, 1) }.check().is_err());
        assert!(Open { patience: f64::NAN, ..open("tarn-bench-1", 0, 1) }.check().is_err());
    }
}
