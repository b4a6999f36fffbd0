//! `tarn clients`: who uses the running server.

use std::time::Duration;

use clap::Args;

use super::{Where, table};
use crate::admin::client;
use crate::exit::Outcome;
use crate::protocol::{ClientView, Request};
use crate::sizes::show_span;

#[derive(Debug, Args)]
pub struct Clients {
    #[command(flatten)]
    place: Where,
}

impl Clients {
    pub fn run(self) -> Outcome<()> {
        let clients: Vec<ClientView> = client::ask(&self.place.data()?, &Request::Clients)?;
        let row = |client: &ClientView| {
            vec![
                client.address.clone(),
                client.connections.to_string(),
                client.operations.to_string(),
                show_span(Duration::from_secs(client.idle_seconds)),
                client.exports.join(" "),
            ]
        };
        let rows: Vec<_> = clients.iter().map(row).collect();
        table::print(&["CLIENT", "CONNECTIONS", "CALLS", "IDLE", "MOUNTED"], &rows);
        Ok(())
    }
}
