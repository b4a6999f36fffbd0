//! The end of a history: nothing fails any more, and what must hold then is checked.

use bytes::Bytes;
use tarn_vfs::op::{Data, Op, Slot};
use tarn_vfs::{Attr, Caller, CreateMode, FileSystem, Node, Reply, SetAttr, Stability};
use tokio::task::JoinHandle;

use super::{End, Opened, Story, no_panics};
use crate::check;
use crate::client::remote::Remote;
use crate::failure::{Checked, Failure};

impl Story {
    /// The last life: nothing fails any more; everything is settled, checked, moved, and checked again.
    pub(super) async fn settle(&mut self, end: End) -> Checked {
        let mut plan = self.plan.lives[0];
        plan.opening_crashes = 0;
        plan.store_faults = 0;
        plan.store_spells = 0;
        plan.clock_jumps = 0;
        plan.commit_faults = 0;
        plan.spoilt_reads = 0;
        plan.store_full = 0;
        let opened = self.open(&plan, end).await?;
        self.verify(&opened).await?;
        self.settled(&opened).await?;
        if self.spoiler.percent(30) {
            return self.usurp(&opened).await;
        }
        let last = opened.engine.log().appended();
        let closed = opened.engine.close().await;
        closed.map_err(|error| Failure::new("closing", "a clean stop in calm", error.to_string()))?;
        drop(opened);
        self.kill().await?;
        self.event("machine", format_args!("stopped cleanly at {last}; the bucket alone goes on"));
        self.knowledge.promised.set(last);
        self.knowledge.past.borrow_mut().clear();
        self.may_need_log = false;
        self.left_behind = Some(self.machine.replace_disk());
        let opened = self.open(&plan, End::Saved).await?;
        self.verify(&opened).await?;
        check::walk::check(&opened.engine).await
    }

    /// A file that is stored and then cut off: there is garbage in every history.
    async fn leave_garbage(&mut self, opened: &Opened) -> Checked {
        let node = Slot(u32::MAX);
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        let [create, write] = self.file(b"garbage", node, 0);
        self.settle_each(opened, [create, write, Op::Setattr { node, set: cut }]).await
    }

    /// Two files of one content, of which one goes: what they shared, if they did, stays with the other.
    async fn leave_twins(&mut self, opened: &Opened) -> Checked {
        let hits = || opened.engine.status().dedupe.hits;
        let before = hits();
        let [first, second] = [(b"twin0", Slot(u32::MAX - 1)), (b"twin1", Slot(u32::MAX - 2))];
        let made = [self.file(first.0, first.1, 1), self.file(second.0, second.1, 1)].concat();
        self.settle_each(opened, made).await?;
        if hits() > before {
            self.coverage.hit("dedupe", "one of two that share goes");
        }
        self.settle_each(opened, [Op::Remove { dir: Slot(0), name: Bytes::from_static(first.0) }]).await
    }

    /// A new file; `content` says which of a history's it has.
    fn file(&self, name: &'static [u8], node: Slot, content: u64) -> [Op; 2] {
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let name = Bytes::from_static(name);
        let data = Data { seed: self.plan.seed.wrapping_add(content << 32), count: 5000 };
        [
            Op::Create { dir: Slot(0), name, mode: CreateMode::Unchecked, set, into: node },
            Op::Write { node, offset: 0, data, stability: Stability::File },
        ]
    }

    /// Runs operations, with a checkpoint after each.
    async fn settle_each(&mut self, opened: &Opened, ops: impl IntoIterator<Item = Op>) -> Checked {
        for op in ops {
            let (slots, issue) = {
                let pairs = self.knowledge.pairs.borrow();
                (pairs.engine.clone(), self.knowledge.tracker.issue(&op, &Caller::root(), &pairs.model))
            };
            let caller = Caller::root();
            let run = op.run(&*opened.fs, &caller, &slots);
            let outcome = self.knowledge.tracker.run(&issue, run).await;
            if let Some(ran) = issue.ran().filter(|ran| ran.outcome.seen == outcome.seen) {
                self.knowledge.pairs.borrow_mut().note(&op, &outcome, &ran.outcome, ran.at)?;
            }
            let done = opened.engine.checkpoint().await;
            done.map_err(|error| Failure::new("settling", "a checkpoint in calm", error.to_string()))?;
        }
        Ok(())
    }

    /// Another node takes the store while its owner works; that one answers nothing any more, the other everything.
    async fn usurp(&mut self, former: &Opened) -> Checked {
        let failed = |what: String| Failure::new("deposed", "a store that is taken", what);
        let done = former.engine.checkpoint().await;
        done.map_err(|error| failed(error.to_string()))?;
        self.event("machine", format_args!("works on while another takes the store"));
        self.coverage.hit("endings", "taken from a living owner");
        let (root, model_root) = {
            let pairs = self.knowledge.pairs.borrow();
            (pairs.engine[&Slot(0)], pairs.model[&Slot(0)])
        };
        let asked = match &former.remote {
            Some(remote) if self.spoiler.percent(50) => Some(self.stand_still(remote, root).await),
            _ => None,
        };
        let mut rival = self.machine.rival();
        let (engine, report) = rival.open(None, true).await.map_err(|error| failed(error.to_string()))?;
        self.event("machine", format_args!("opened by another: {report:?}"));
        if let Some(asked) = asked {
            self.machine.tasks.go_on();
            check::deposed::answered(asked.await.ok())?;
        }
        check::deposed::check(&*former.fs, root).await?;
        let model = self.knowledge.tracker.model.snapshot();
        check::tree::check(&*rival.file_system(&engine), root, &model, model_root).await?;
        self.kill().await?;
        no_panics(rival.tasks.kill().await)
    }

    /// Stops the machine while a client has just asked it something. Gives what the client hears.
    async fn stand_still(&self, remote: &Remote, root: Node) -> JoinHandle<Reply<Attr>> {
        let wire = remote.plain();
        // The connection is there.
        let _ = wire.getattr(&Caller::root(), root).await;
        self.event("machine", format_args!("stands still meanwhile"));
        self.coverage.hit("endings", "taken from an owner that stood still");
        self.machine.tasks.stop();
        tokio::spawn(async move { wire.getattr(&Caller::root(), root).await })
    }

    /// Checkpoint, reclaim, and what must hold then.
    async fn settled(&mut self, opened: &Opened) -> Checked {
        let failed = |what: String| Failure::new("settling", "a checkpoint and a pass of reclaim in calm", what);
        let done = opened.engine.checkpoint().await.map_err(|error| failed(error.to_string()))?;
        self.event("settle", format_args!("{done:?}"));
        check::walk::check(&opened.engine).await?;
        self.leave_garbage(opened).await?;
        self.leave_twins(opened).await?;
        self.note_dedupe(opened);
        for _ in 0..3 {
            let reclaimed = opened.engine.reclaim_now().await.map_err(|error| failed(error.to_string()))?;
            self.event("settle", format_args!("{reclaimed:?}"));
            opened.engine.checkpoint().await.map_err(|error| failed(error.to_string()))?;
            // What was condemned may go then.
            tokio::time::sleep(self.plan.hold.max(self.machine.checkpoints_live())).await;
        }
        check::walk::check(&opened.engine).await?;
        let model = self.knowledge.tracker.model.snapshot();
        for volume in opened.engine.volume_list() {
            // Of the others nothing is known here.
            let Some(number) = volume.name.strip_prefix("vol").and_then(|number| number.parse().ok()) else { continue };
            let slot = Slot(number);
            let model_root = self.knowledge.pairs.borrow().model[&slot];
            let usage = (volume.usage.bytes, volume.usage.inodes);
            check::usage::check(usage, &model, model_root.volume).await?;
        }
        self.check_all(opened, &model, &[]).await
    }
}
