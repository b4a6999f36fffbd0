//! Calls that must not run twice (engine rule 9).
//!
//! - The outcome is part of the operation's own entry, so it survives with it.
//! - A refusal changed nothing and is in no entry; it is remembered in RAM, so that a late copy of the call does not
//!   run after all. No copy comes late across a restart, for its connection is gone.
//! - A repeat of a call in progress joins it, on whatever connection it comes.
//! - The last [`OUTCOMES_MAX`] outcomes of each client are kept, and as many refusals, which push no outcome out; of about
//!   the last [`CLIENTS_MAX`] clients to call: whoever has been silent the longest is forgotten for one more.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use tarn_base::ids::Position;
use tarn_vfs::{ClientId, Done, Effect, Errno, OnceToken, Reply};
use tokio::sync::oneshot;

pub const OUTCOMES_MAX: usize = 1024;

/// Clients remembered. A kernel mount is one client; some hundred bytes an outcome bound the memory, and the image in the
/// log.
pub const CLIENTS_MAX: usize = 1024;

const SHARDS: usize = 16;

/// What to do with a call.
#[derive(Debug)]
pub enum Enter {
    /// It is new: run it and [`OnceTable::leave`].
    Run,
    /// It ran: this came of it.
    Ran(Box<Reply<Effect>>),
    /// It runs: its reply will come here too.
    Runs(oneshot::Receiver<Reply<Effect>>),
}

type Name = (u64, u64);

#[derive(Debug, Default)]
struct Client {
    outcomes: BTreeMap<Name, Reply<Effect>>,
    order: VecDeque<Name>,
    refused: VecDeque<Name>,
    running: BTreeMap<Name, Vec<oneshot::Sender<Reply<Effect>>>>,
    /// The shard's count of calls when it last called.
    called: u64,
}

#[derive(Debug, Default)]
struct Shard {
    clients: BTreeMap<ClientId, Client>,
    calls: u64,
}

impl Shard {
    fn client(&mut self, id: ClientId) -> &mut Client {
        self.calls += 1;
        if !self.clients.contains_key(&id) && self.clients.len() >= CLIENTS_MAX / SHARDS {
            let idle = self.clients.iter().filter(|(_, client)| client.running.is_empty());
            // Whoever only was refused goes first: nobody needs to be told twice what did not happen.
            let last = idle.min_by_key(|(_, client)| (!client.order.is_empty(), client.called));
            if let Some(silent) = last.map(|(id, _)| *id) {
                self.clients.remove(&silent);
            }
        }
        let client = self.clients.entry(id).or_default();
        client.called = self.calls;
        client
    }
}

impl Client {
    fn remember(&mut self, name: Name, reply: Reply<Effect>) {
        let order = if reply.is_ok() { &mut self.order } else { &mut self.refused };
        if self.outcomes.insert(name, reply).is_none() {
            order.push_back(name);
        }
        if order.len() > OUTCOMES_MAX
            && let Some(oldest) = order.pop_front()
        {
            self.outcomes.remove(&oldest);
        }
    }
}

/// Outcomes and running calls of all clients.
#[derive(Debug, Default)]
pub struct OnceTable {
    shards: [Mutex<Shard>; SHARDS],
}

impl OnceTable {
    fn shard(&self, client: ClientId) -> &Mutex<Shard> {
        let mixed = (client.0 as u64 ^ (client.0 >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.shards[(mixed >> 60) as usize % SHARDS]
    }

    pub fn enter(&self, token: &OnceToken) -> Enter {
        let mut shard = self.shard(token.client).lock();
        let client = shard.client(token.client);
        let name = (token.number, token.digest);
        if let Some(reply) = client.outcomes.get(&name) {
            return Enter::Ran(Box::new(reply.clone()));
        }
        if let Some(waiting) = client.running.get_mut(&name) {
            let (sender, receiver) = oneshot::channel();
            waiting.push(sender);
            return Enter::Runs(receiver);
        }
        client.running.insert(name, Vec::new());
        Enter::Run
    }

    /// The call has come to its end. Whoever joined it gets the same reply.
    pub fn leave(&self, token: &OnceToken, reply: &Reply<Effect>) {
        let waiting = {
            let mut shard = self.shard(token.client).lock();
            let client = shard.client(token.client);
            let name = (token.number, token.digest);
            match reply {
                // "Later" is not an outcome: the client asks again, under another number.
                Err(refusal) if matches!(refusal.value.errno, Errno::TryLater | Errno::Grace) => {}
                Err(_) => client.remember(name, reply.clone()),
                Ok(_) => {}
            }
            client.running.remove(&name)
        };
        for sender in waiting.unwrap_or_default() {
            // Whoever went away does not need it.
            let _ = sender.send(reply.clone());
        }
    }

    pub fn remember(&self, token: &OnceToken, effect: Effect, position: Position) {
        let mut shard = self.shard(token.client).lock();
        let client = shard.client(token.client);
        client.remember((token.number, token.digest), Ok(Done { value: effect, position }));
    }

    /// The newest `most` outcomes that changed something, oldest first, for the image of session state.
    pub fn outcomes(&self, most: usize) -> Vec<(OnceToken, Effect, Position)> {
        let since = self.since(most);
        let mut out = Vec::new();
        self.each(|token, done| {
            if done.position >= since {
                out.push((token, done.value.clone(), done.position));
            }
        });
        out.sort_by_key(|(_, _, position)| *position);
        out.drain(..out.len().saturating_sub(most));
        out
    }

    /// The position of the oldest of the newest `most` outcomes.
    fn since(&self, most: usize) -> Position {
        let mut positions = Vec::new();
        self.each(|_, done| positions.push(done.position));
        if most == 0 || positions.len() <= most {
            return Position::ZERO;
        }
        let at = positions.len() - most;
        *positions.select_nth_unstable(at).1
    }

    fn each(&self, mut take: impl FnMut(OnceToken, &Done<Effect>)) {
        for shard in &self.shards {
            for (id, client) in &shard.lock().clients {
                for name in &client.order {
                    if let Some(Ok(done)) = client.outcomes.get(name) {
                        take(OnceToken { client: *id, number: name.0, digest: name.1 }, done);
                    }
                }
            }
        }
    }

    /// Outcomes that changed something.
    pub fn remembered(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().clients.values().map(|client| client.order.len()).sum::<usize>())
            .sum()
    }

    pub fn clear(&self) {
        for shard in &self.shards {
            shard.lock().clients.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_joins_a_running_call_and_gets_the_outcome_of_one_that_ran() {
        let table = OnceTable::default();
        let token = OnceToken { client: ClientId(1), number: 2, digest: 3 };
        assert!(matches!(table.enter(&token), Enter::Run));
        let Enter::Runs(mut joined) = table.enter(&token) else { panic!("must join") };
        let effect = Effect { count: 9, ..Default::default() };
        table.remember(&token, effect.clone(), Position(5));
        table.leave(&token, &Ok(Done { value: effect.clone(), position: Position(5) }));
        assert_eq!(joined.try_recv().unwrap().unwrap().value, effect);
        let Enter::Ran(held) = table.enter(&token) else { panic!("must have run") };
        assert_eq!(*held, Ok(Done { value: effect, position: Position(5) }));
        let other = OnceToken { digest: 4, ..token };
        assert!(matches!(table.enter(&other), Enter::Run));
    }

    #[test]
    fn the_client_that_is_silent_the_longest_is_forgotten_first() {
        let table = OnceTable::default();
        let token = |client: u128, number| OnceToken { client: ClientId(client), number, digest: 0 };
        let running = token(1, 0);
        assert!(matches!(table.enter(&running), Enter::Run));
        for client in 2..20_000 {
            table.remember(&token(client, 1), Effect::default(), Position(1));
            table.remember(&token(0, client as u64), Effect::default(), Position(2));
        }
        assert!(table.shards.iter().map(|shard| shard.lock().clients.len()).sum::<usize>() <= CLIENTS_MAX);
        assert!(matches!(table.enter(&token(0, 19_999)), Enter::Ran(_)), "a client that calls was forgotten");
        assert!(matches!(table.enter(&token(2, 1)), Enter::Run), "a silent client is remembered for ever");
        assert!(matches!(table.enter(&running), Enter::Runs(_)), "a running call was forgotten");
        assert_eq!(table.remembered(), table.outcomes(usize::MAX).len());
        for client in 20_000..40_000 {
            let token = token(client, 1);
            assert!(matches!(table.enter(&token), Enter::Run));
            table.leave(&token, &Err(Done::now(Errno::NotFound.into())));
        }
        assert!(matches!(table.enter(&token(0, 19_999)), Enter::Ran(_)), "refusals of others pushed it out");
    }

    #[test]
    fn only_the_last_outcomes_are_kept() {
        let table = OnceTable::default();
        for number in 0..OUTCOMES_MAX as u64 + 10 {
            let token = OnceToken { client: ClientId(1), number, digest: 0 };
            table.remember(&token, Effect::default(), Position(number));
        }
        for number in 0..3 * OUTCOMES_MAX as u64 {
            let token = OnceToken { client: ClientId(1), number, digest: 1 };
            assert!(matches!(table.enter(&token), Enter::Run));
            table.leave(&token, &Err(Done::now(Errno::NotFound.into())));
        }
        let kept = table.outcomes(usize::MAX);
        assert_eq!(table.outcomes(10), kept[kept.len() - 10..]);
        assert_eq!(kept.len(), OUTCOMES_MAX, "refusals push outcomes out");
        assert_eq!(kept[0].0.number, 10);
        let all = table
            .shards
            .iter()
            .flat_map(|shard| shard.lock().clients.values().map(|client| client.outcomes.len()).collect::<Vec<_>>());
        assert_eq!(all.sum::<usize>(), 2 * OUTCOMES_MAX);
    }
}
