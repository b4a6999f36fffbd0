//! Clients, a network that loses calls and answers, and one lock.
//!
//! The seed decides who asks when, what is lost, and when what arrives. It must hold that no two clients ever
//! believe that they have the lock, and that in the end, when all have given it up, nobody has it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::bench::*;
use crate::peer::fake::{FakeNet, Heard, Say};

const SEEDS: u64 = 200;
const STEPS: usize = 60;
const CLIENTS: [(&str, &str); 3] = [("a", "10.0.0.2"), ("a", "10.0.0.3"), ("c", "10.0.0.4")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    Idle,
    Waiting,
    Holding,
}

struct Clients {
    seed: u64,
    beliefs: [Belief; CLIENTS.len()],
    /// In percent.
    loss: u64,
}

impl Clients {
    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn hold(&mut self, client: usize) {
        self.beliefs[client] = Belief::Holding;
        let holders = self.beliefs.iter().filter(|belief| **belief == Belief::Holding).count();
        assert!(holders <= 1, "two clients hold one exclusive lock: {:?}", self.beliefs);
    }

    /// A client hears GRANTED, as Linux does: yes if it waits, else no.
    fn granted(&mut self, heard: &Heard) -> Say {
        let address = |(_, address): &(&str, &str)| address.parse() == Ok::<IpAddr, _>(heard.to.ip());
        let client = CLIENTS.iter().position(address).unwrap();
        if self.draw(100) < self.loss {
            return Say::Silence;
        }
        let answer = if self.beliefs[client] == Belief::Waiting {
            self.hold(client);
            GRANTED
        } else {
            DENIED
        };
        if self.draw(100) < self.loss { Say::Silence } else { Say::Results(status(heard, answer)) }
    }
}

struct Race {
    bench: Bench,
    clients: Arc<Mutex<Clients>>,
}

impl Race {
    fn new(seed: u64) -> Race {
        let loss = seed % 4 * 15;
        let beliefs = [Belief::Idle; CLIENTS.len()];
        let clients = Arc::new(Mutex::new(Clients { seed: seed.wrapping_mul(77) + 1, beliefs, loss }));
        let heard_by = clients.clone();
        let net = FakeNet::new(move |heard| heard_by.lock().granted(heard));
        Race { bench: Bench::with_exports("* rw", net), clients }
    }

    fn owner(client: usize) -> Owner {
        owner(CLIENTS[client].0, CLIENTS[client].1, 7)
    }

    /// Asks, or asks again, and waits. The answer may be lost; Linux then repeats the call, as the next step may.
    async fn ask(&self, client: usize) {
        self.clients.lock().beliefs[client] = Belief::Waiting;
        let answer = self.bench.lock(&Race::owner(client), WAIT).await;
        let mut clients = self.clients.lock();
        if answer == GRANTED && clients.beliefs[client] == Belief::Waiting {
            let loss = clients.loss;
            if clients.draw(100) >= loss {
                clients.hold(client);
            }
        }
    }

    /// Gives up waiting: from the moment of asking, the client says no to a grant. It cancels until it is heard.
    async fn cancel(&self, client: usize) {
        self.clients.lock().beliefs[client] = Belief::Idle;
        self.bench.cancel(&Race::owner(client), WAIT).await;
    }

    async fn unlock(&self, client: usize) {
        self.clients.lock().beliefs[client] = Belief::Idle;
        self.bench.unlock(&Race::owner(client), 0, 0).await;
    }

    async fn step(&self) {
        let (client, what, belief) = {
            let mut clients = self.clients.lock();
            let client = clients.draw(CLIENTS.len() as u64) as usize;
            (client, clients.draw(10), clients.beliefs[client])
        };
        match (belief, what) {
            (_, 0..=2) => self.bench.clock.pass(Duration::from_millis(300 << (2 * what))).await,
            (_, 3) => self.bench.settle().await,
            (Belief::Idle, _) => self.ask(client).await,
            (Belief::Waiting, 4..=6) => self.ask(client).await,
            (Belief::Waiting, _) => self.cancel(client).await,
            (Belief::Holding, _) => self.unlock(client).await,
        }
    }

    /// Everybody gets what it waits for and gives it up.
    async fn end(&self) {
        self.clients.lock().loss = 0;
        for _ in 0..2 * CLIENTS.len() {
            for client in 0..CLIENTS.len() {
                let belief = self.clients.lock().beliefs[client];
                match belief {
                    Belief::Idle => {}
                    Belief::Waiting => self.ask(client).await,
                    Belief::Holding => self.unlock(client).await,
                }
                self.bench.settle().await;
            }
        }
        self.bench.clock.pass(Duration::from_secs(400)).await;
    }
}

#[tokio::test]
async fn a_lock_has_one_holder_and_is_never_left_behind() {
    for seed in 0..SEEDS {
        let race = Race::new(seed);
        for _ in 0..STEPS {
            race.step().await;
        }
        race.end().await;
        assert_eq!(race.clients.lock().beliefs, [Belief::Idle; CLIENTS.len()], "seed {seed}: somebody waits for ever");
        assert_eq!(race.bench.locks(), [], "seed {seed}: locks are left behind");
        assert!(race.bench.nlm.waiters.is_empty(), "seed {seed}");
    }
}
