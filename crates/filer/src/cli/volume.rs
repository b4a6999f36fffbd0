//! `tarn volume`: the volumes of the running server.

use std::io::{BufRead, IsTerminal, Write};

use clap::{Args, Subcommand};

use super::{Where, table};
use crate::admin::client;
use crate::exit::{Outcome, Stop};
use crate::protocol::{Request, VolumeChange, VolumeView};
use crate::sizes::{self, show_size, show_span};

#[derive(Debug, Subcommand)]
pub enum Volume {
    /// Make a volume and export it as /NAME
    Create {
        /// 1 to 64 letters, digits, '-', '_' or '.', beginning with a letter or digit
        name: String,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        place: Where,
    },
    /// List all volumes
    List {
        #[command(flatten)]
        place: Where,
    },
    /// Show everything about one
    Show {
        /// Name of the volume
        name: String,
        #[command(flatten)]
        place: Where,
    },
    /// Change what is given, at once
    Set {
        /// Name of the volume
        name: String,
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        place: Where,
    },
    /// Delete one; its data is kept for 24 hours
    Delete {
        /// Name of the volume
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        place: Where,
    },
    /// Bring a deleted one back within 24 hours
    Undelete {
        /// Its name; of several, the one that was deleted last
        name: String,
        /// The name it gets, if another volume has its own now
        #[arg(long = "as", value_name = "NAME")]
        new_name: Option<String>,
        #[command(flatten)]
        place: Where,
    },
}

#[derive(Debug, Args)]
pub struct Change {
    /// Size of a record of files made from now on: a power of two from 4KiB to 1MiB
    #[arg(long, value_name = "SIZE", value_parser = sizes::parse_size)]
    record_size: Option<u64>,
    /// normal: acknowledged on the log's disk; high: in memory, a crash may lose the last 10 s
    #[arg(long, value_name = "SPEED", value_parser = ["normal", "high"])]
    write_speed: Option<String>,
    /// How long changes may wait in the log before they go to the store, up to 12h
    #[arg(long, value_name = "TIME", value_parser = sizes::parse_span)]
    write_back_delay: Option<std::time::Duration>,
    /// none, lz4, zstd or zstd-1 to zstd-19
    #[arg(long, value_name = "KIND")]
    compression: Option<String>,
    /// Whether content that the volume holds already is pointed to rather than stored again
    #[arg(long, value_name = "ON|OFF", value_parser = ["on", "off"])]
    dedupe: Option<String>,
    /// Bytes of files it may hold; "none" takes the limit away
    #[arg(long, value_name = "SIZE", value_parser = limit)]
    size_limit: Option<u64>,
    /// Export rules, separated by semicolons, or @FILE; "" for the default. See docs/protocols/nfs3.md
    #[arg(long, value_name = "RULES")]
    exports: Option<String>,
}

fn limit(text: &str) -> Result<u64, String> {
    if text == "none" { Ok(0) } else { sizes::parse_size(text) }
}

impl Change {
    fn gather(self) -> Outcome<VolumeChange> {
        let exports = match self.exports {
            Some(text) => Some(match text.strip_prefix('@') {
                Some(path) => std::fs::read_to_string(path).map_err(|error| Stop::ValueInvalid {
                    what: "--exports",
                    value: text.clone(),
                    reason: error.to_string(),
                })?,
                None => text,
            }),
            None => None,
        };
        Ok(VolumeChange {
            record_size: self.record_size.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            write_speed: self.write_speed,
            write_back_delay_ms: self.write_back_delay.map(|span| span.as_millis() as u64),
            compression: self.compression,
            dedupe: self.dedupe.map(|word| word == "on"),
            size_limit: self.size_limit,
            exports,
        })
    }
}

impl Volume {
    pub fn run(self) -> Outcome<()> {
        match self {
            Volume::Create { name, change, place } => {
                // Its root belongs to whoever makes it, so that a touch works at once.
                let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
                let request = Request::CreateVolume { name, change: change.gather()?, uid, gid };
                let view: VolumeView = client::ask(&place.data()?, &request)?;
                say!("volume {} is exported as {}", view.name, view.export);
            }
            Volume::List { place } => list(&all(&place)?),
            Volume::Show { name, place } => match named(&name, &all(&place)?) {
                Some(view) => show(view),
                None => return Err(Stop::Refused(format!("there is no volume {name}; see `tarn volume list`"))),
            },
            Volume::Set { name, change, place } => {
                let request = Request::SetVolume { name, change: change.gather()? };
                show(&client::ask::<VolumeView>(&place.data()?, &request)?);
            }
            Volume::Delete { name, yes, place } => {
                if !yes {
                    confirm(&name)?;
                }
                let _: serde_json::Value = client::ask(&place.data()?, &Request::DeleteVolume { name: name.clone() })?;
                say!("volume {name} is deleted; `tarn volume undelete {name}` brings it back within 24 hours");
            }
            Volume::Undelete { name, new_name, place } => {
                let request = Request::UndeleteVolume { new_name: new_name.unwrap_or_else(|| name.clone()), name };
                let view: VolumeView = client::ask(&place.data()?, &request)?;
                say!("volume {} is back as {}", view.name, view.export);
            }
        }
        Ok(())
    }
}

fn all(place: &Where) -> Outcome<Vec<VolumeView>> {
    client::ask(&place.data()?, &Request::Volumes)
}

/// The volume of this name; a deleted one only if no other has it, and of several the one that `undelete` brings back.
fn named<'a>(name: &str, volumes: &'a [VolumeView]) -> Option<&'a VolumeView> {
    let of_name = volumes.iter().filter(|view| view.name == name);
    of_name.max_by_key(|view| view.deleted_ms.unwrap_or(i64::MAX))
}

fn confirm(name: &str) -> Outcome<()> {
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        say_part!("Type the name of the volume to delete it: ");
        let _ = std::io::stdout().flush();
    }
    let mut typed = String::new();
    let _ = stdin.read_line(&mut typed);
    if typed.trim() == name { Ok(()) } else { Err(Stop::NotConfirmed(name.to_owned())) }
}

fn list(volumes: &[VolumeView]) {
    let row = |view: &VolumeView| {
        let state = match view.deleted_ms {
            Some(_) => "deleted".to_owned(),
            None if view.write_speed == "high" => "HIGH: a crash may lose the last 10 s".to_owned(),
            None => view.write_speed.clone(),
        };
        let limit = view.size_limit.map_or("none".to_owned(), show_size);
        vec![view.name.clone(), view.export.clone(), show_size(view.used_bytes), limit, state]
    };
    let rows: Vec<_> = volumes.iter().map(row).collect();
    table::print(&["NAME", "EXPORT", "USED", "LIMIT", "WRITE SPEED"], &rows);
}

fn show(view: &VolumeView) {
    say!("name              {}", view.name);
    say!("export            {}", view.export);
    say!("record size       {}", show_size(u64::from(view.record_size)));
    say!("write speed       {}", view.write_speed);
    say!("write-back delay  {}", show_span(std::time::Duration::from_millis(view.write_back_delay_ms)));
    say!("compression       {}", view.compression);
    say!("dedupe            {}", if view.dedupe { "on" } else { "off" });
    say!("size limit        {}", view.size_limit.map_or("none".to_owned(), show_size));
    say!("used              {} in {} inodes", show_size(view.used_bytes), view.used_inodes);
    if let Some(stored) = view.stored_bytes {
        let saved = if view.saved_bytes > 0 {
            format!(", dedupe saves {}", show_size(view.saved_bytes))
        } else {
            String::new()
        };
        say!("stored            {}{saved}", show_size(stored));
    }
    let rules = if view.exports.is_empty() { "default" } else { view.exports.trim_end() };
    say!("exports           {}", rules.replace('\n', "\n                  "));
    if view.deleted_ms.is_some() {
        say!("deleted           `tarn volume undelete {}` brings it back within 24 hours", view.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_means_the_volume_that_lives() {
        let view = |id, deleted_ms| VolumeView { id, name: "v".into(), deleted_ms, ..VolumeView::default() };
        let volumes = [view(1, Some(50)), view(2, None), view(3, Some(70))];
        assert_eq!(named("v", &volumes).unwrap().id, 2);
        assert_eq!(named("v", &[view(1, Some(70)), view(2, Some(50))]).unwrap().id, 1);
        assert_eq!(named("w", &volumes), None);
    }
}
