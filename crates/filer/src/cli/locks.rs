//! `tarn locks`: which locks are held, and the end of those whose client will not come back.

use clap::Subcommand;

use super::{Where, table};
use crate::admin::client;
use crate::exit::Outcome;
use crate::protocol::{LockView, Request};

#[derive(Debug, Subcommand)]
pub enum Locks {
    /// List held and waiting locks
    List {
        #[command(flatten)]
        place: Where,
    },
    /// Release everything that a client holds or waits for
    Break {
        /// The client's name as the list shows it
        client: String,
        #[command(flatten)]
        place: Where,
    },
}

impl Locks {
    pub fn run(self) -> Outcome<()> {
        match self {
            Locks::List { place } => list(&client::ask::<Vec<LockView>>(&place.data()?, &Request::Locks)?),
            Locks::Break { client, place } => {
                let count: u64 = client::ask(&place.data()?, &Request::BreakLocks { client: client.clone() })?;
                say!("released what {client} held and waited for: {count}");
            }
        }
        Ok(())
    }
}

fn list(locks: &[LockView]) {
    let row = |lock: &LockView| {
        vec![
            lock.client.clone(),
            lock.process.to_string(),
            lock.volume.clone(),
            lock.inode.to_string(),
            lock.kind.clone(),
            format!("{}-{}", lock.start, lock.end.map_or("end".to_owned(), |end| end.to_string())),
            if lock.waiting { "waits" } else { "holds" }.to_owned(),
        ]
    };
    let rows: Vec<_> = locks.iter().map(row).collect();
    table::print(&["CLIENT", "PROCESS", "VOLUME", "INODE", "KIND", "BYTES", "STATE"], &rows);
}
