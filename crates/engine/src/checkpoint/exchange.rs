//! Showing a checkpoint and giving its room in the log back.
//!
//! - The generation's values enter the cache, and listings that it changes leave, before it leaves the stack, so that no
//!   older value is seen between.
//! - What is alive of session state is durable at the log's head before anything is trimmed (engine rule 10).

use tarn_base::ids::Position;
use tarn_base::mutant;
use tarn_wal::LogError;
use tokio::sync::oneshot;

use super::collect::Collected;
use super::pack::Packed;
use super::{CheckpointError, Done, Keeper, Turn};
use crate::image::Outcomes;
use crate::key::Kind;
use crate::overlay::Closed;
use crate::segments::SegmentChange;
use crate::value::Inode;

impl Keeper {
    pub(super) async fn show(
        &self,
        turn: &mut Turn,
        number: u64,
        collected: Collected,
        packed: Packed,
        changes: &[SegmentChange],
    ) -> Result<(), CheckpointError> {
        let view = self.ready(turn).await?.view();
        let after = self.core.stack.with(|stack| stack.generations.last().map(|oldest| oldest.after));
        self.core.caches.names.bring(&collected.keys, after.unwrap_or(Inode::PENDING));
        let _pause = self.core.exchange_pause.write().await;
        let showing = self.core.stack.show();
        let listings = &self.core.caches.listings;
        listings.close(collected.keys.iter().map(|(key, _)| key));
        let caches = &self.core.caches.keys;
        for (key, value) in collected.keys {
            if mutant::on(mutant::NEGATIVE_KEPT) && caches.get(&key).is_some_and(|cached| cached.is_none()) {
                continue;
            }
            match value {
                // Nobody asks for one: listings are kept by themselves.
                _ if key.kind == Kind::EntryCookie => {}
                Some(value) => caches.insert(key, Some(value)),
                // What is gone is seldom asked for again, and would stand in the place of what is there.
                None => drop(caches.remove(&key)),
            }
        }
        for (key, pointer) in packed.pointers {
            let mut value = Vec::with_capacity(56);
            pointer.encode(&mut value);
            caches.insert(key, Some(value.into()));
        }
        for change in changes {
            if let SegmentChange::Move { records, .. } = change {
                records.iter().for_each(|record| self.core.segments.forget_forwarding(record.from));
            }
        }
        showing.exchange(number, view);
        listings.open();
        Ok(())
    }

    /// Shows a generation that turned out to be in the store.
    pub(super) async fn adopt(&self, turn: &mut Turn, number: u64, closed: &Closed) -> Result<Done, CheckpointError> {
        self.verify(turn).await?;
        let view = self.ready(turn).await?.view();
        {
            let _pause = self.core.exchange_pause.write().await;
            let showing = self.core.stack.show();
            // Its new pointers are not known here.
            self.core.caches.keys.clear();
            self.core.caches.listings.close_all();
            self.core.caches.names.clear();
            showing.exchange(number, view);
            self.core.caches.listings.open();
        }
        turn.trimmed = closed.last;
        self.trim(closed.last).await?;
        Ok(Done { position: closed.last, ..Done::default() })
    }

    /// Trims the log up to `upto`, which the store holds.
    pub(super) async fn trim(&self, upto: Position) -> Result<(), CheckpointError> {
        let log = &self.core.log;
        let complete = match self.image().await? {
            Some(outcomes) => {
                self.core.config.crash_point("the session image is durable").await;
                outcomes.written == outcomes.all
            }
            None => {
                // The room for it is in what would be trimmed. Between the two, a crash would lose locks and remembered
                // outcomes; waiting would lose the service.
                tracing::warn!("the log is too full for the session image; it is trimmed first");
                false
            }
        };
        log.trim(upto)?;
        if !complete && self.image().await?.is_none() {
            tracing::error!("the log has no room for session state: a crash before the next checkpoint loses it");
        }
        self.core.log_trimmed.notify_waiters();
        self.core.config.crash_point("the log is trimmed").await;
        Ok(())
    }

    /// Writes the image of session state, with as many outcomes as there is room for; `None` if not even the locks fit.
    ///
    /// Changes wait while one is made: it is not made by a thread that gives way to all others, and would hold them up meanwhile.
    async fn image(&self) -> Result<Option<Outcomes>, CheckpointError> {
        let mut most = usize::MAX;
        loop {
            let (sender, receiver) = oneshot::channel();
            let core = self.core.clone();
            let made = async move { drop(sender.send(core.append_session_image(most))) };
            self.core.world.spawn.spawn("session image", Box::pin(made));
            match receiver.await.map_err(|_| CheckpointError::Stopping)? {
                Ok((position, outcomes)) => {
                    self.core.log.wait(position).await?;
                    return Ok(Some(outcomes));
                }
                Err(LogError::Full | LogError::Busy) if most == 0 => return Ok(None),
                Err(LogError::Full | LogError::Busy) => most = most.min(self.core.outcomes_in_image()) / 2,
                Err(error) => return Err(error.into()),
            }
        }
    }
}
