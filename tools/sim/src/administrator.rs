//! An administrator who makes, changes, deletes and brings back volumes while clients work.

use std::sync::Arc;
use std::time::Duration;

use tarn_engine::{AdminError, Engine};
use tarn_vfs::{CompressionSetting, Errno, VolumeSettings};

use crate::chance::Chance;
use crate::check::volumes::{Volumes, volumes};
use crate::client::Life;
use crate::failure::{Checked, Failure};
use crate::machine::volume;

/// Volumes that are made and deleted; others are only changed.
const NAMES: [&str; 3] = ["extra0", "extra1", "extra2"];

/// A change of a volume.
#[derive(Clone, Debug)]
enum Change {
    Create(String),
    Set(String, VolumeSettings),
    Delete(String),
    Undelete(String),
}

impl Change {
    fn draw(now: &Volumes, chance: &mut Chance) -> Change {
        let name = (*chance.pick(&NAMES)).to_owned();
        match now.get(&name) {
            _ if chance.percent(30) => Change::set("vol0".to_owned(), now, chance),
            None => Change::Create(name),
            Some((_, true)) => Change::Undelete(name),
            Some((_, false)) if chance.percent(50) => Change::Delete(name),
            Some((_, false)) => Change::set(name, now, chance),
        }
    }

    fn set(name: String, now: &Volumes, chance: &mut Chance) -> Change {
        let mut settings = now.get(&name).map(|(settings, _)| settings.clone()).unwrap_or_default();
        settings.write_back_delay_ms = *chance.pick(&[0, 20, 200, 2_000, 30_000]);
        settings.compression = *chance.pick(&[CompressionSetting::None, CompressionSetting::Lz4]);
        settings.dedupe = chance.percent(50);
        Change::Set(name, settings)
    }

    fn kind(&self) -> &'static str {
        match self {
            Change::Create(_) => "volume create",
            Change::Set(..) => "volume set",
            Change::Delete(_) => "volume delete",
            Change::Undelete(_) => "volume undelete",
        }
    }

    /// The volumes after it.
    fn apply(&self, volumes: &mut Volumes) {
        match self {
            Change::Create(name) => {
                volumes.insert(name.clone(), (VolumeSettings::default(), false));
            }
            Change::Set(name, settings) => {
                volumes.insert(name.clone(), (settings.clone(), false));
            }
            Change::Delete(name) | Change::Undelete(name) => {
                if let Some((_, deleted)) = volumes.get_mut(name) {
                    *deleted = matches!(self, Change::Delete(_));
                }
            }
        }
    }

    async fn make(&self, engine: &Engine) -> Result<(), AdminError> {
        match self {
            Change::Create(name) => {
                let spec = tarn_engine::VolumeSpec { name: name.clone(), ..volume(0, &VolumeSettings::default()) };
                engine.create_volume(spec).await.map(|_| ())
            }
            Change::Set(name, settings) => engine.set_volume(name, settings.clone()).await,
            Change::Delete(name) => engine.delete_volume(name).await,
            Change::Undelete(name) => engine.undelete_volume(name).await,
        }
    }
}

impl Life<'_> {
    /// Asks for passes of reclaim, one after another, until clients have nothing more to ask.
    pub async fn collect(&self, engine: Arc<Engine>, mut chance: Chance) -> Checked {
        while self.left.get() > 0 {
            tokio::time::sleep(Duration::from_millis(chance.range(1, 20 * self.think_ms + 20))).await;
            let done = engine.reclaim_now().await;
            // What keeps a pass from its end is another's affair.
            self.knowledge.chaos.trace.event("reclaim", format_args!("{done:?}"));
        }
        Ok(())
    }

    /// Changes volumes now and then, until clients have nothing more to ask.
    pub async fn administer(&self, engine: Arc<Engine>, mut chance: Chance) -> Checked {
        for _ in 0..chance.range(1, 6) {
            tokio::time::sleep(Duration::from_millis(chance.below(40 * self.think_ms + 20))).await;
            if self.left.get() == 0 {
                break;
            }
            let mut after = volumes(&engine);
            let change = Change::draw(&after, &mut chance);
            change.apply(&mut after);
            self.knowledge.volumes.borrow_mut().ask(after, self.log.appended());
            self.knowledge.chaos.coverage.hit("operations", change.kind());
            self.knowledge.chaos.trace.event("admin", format_args!("asks   {change:?}"));
            let made = change.make(&engine).await;
            self.knowledge.chaos.trace.event("admin", format_args!("hears  {made:?} of {change:?}"));
            match made {
                Ok(()) => self.knowledge.volumes.borrow_mut().done(self.log.durable()),
                Err(AdminError::Refused(Errno::TryLater | Errno::Io | Errno::ReadOnly | Errno::NoSpace)) => {}
                Err(error) => return Err(Failure::new("volumes", format!("{change:?} is done"), error.to_string())),
            }
        }
        Ok(())
    }
}
