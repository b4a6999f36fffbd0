//! `tarn checkpoint`: brings what is in the log to the store, now.

use clap::Args;

use super::Where;
use crate::admin::client;
use crate::exit::Outcome;
use crate::protocol::Request;

#[derive(Debug, Args)]
pub struct Checkpoint {
    #[command(flatten)]
    place: Where,
}

impl Checkpoint {
    pub fn run(self) -> Outcome<()> {
        let position: String = client::ask(&self.place.data()?, &Request::Checkpoint)?;
        say!("the store holds everything up to {position}");
        Ok(())
    }
}
