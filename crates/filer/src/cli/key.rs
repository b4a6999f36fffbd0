//! `tarn key`: the master key as a code to write down, and back.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use tarn_base::crypto::Key;
use zeroize::Zeroizing;

use crate::config::{Flags, Settings};
use crate::exit::{Outcome, Stop};
use crate::keys::{self, Secrets, code};
use crate::{node, place};

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Show the recovery code of the key
    Export {
        #[command(flatten)]
        place: KeyPlace,
    },
    /// Check a recovery code, read from standard input or TARN_RECOVERY_CODE, against the key
    Verify {
        #[command(flatten)]
        place: KeyPlace,
    },
    /// Make the key file from a recovery code, read from standard input or TARN_RECOVERY_CODE
    Import {
        #[command(flatten)]
        place: KeyPlace,
    },
}

#[derive(Debug, Args)]
pub struct KeyPlace {
    /// The data directory [default: ./tarn-data]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// The file with the key [default: key in the data directory]
    #[arg(long, value_name = "PATH")]
    key_file: Option<PathBuf>,
    /// The store, if its key is under TARN_PASSPHRASE
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// A configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl KeyPlace {
    fn settings(self) -> Outcome<Settings> {
        Settings::gather(&Flags {
            data: self.data,
            key_file: self.key_file,
            store: self.store,
            config: self.config,
            ..Flags::default()
        })
    }
}

impl KeyCommand {
    pub fn run(self) -> Outcome<()> {
        match self {
            KeyCommand::Export { place } => {
                say!("{}", code::encode(&node::key(&place.settings()?)?));
            }
            KeyCommand::Verify { place } => {
                let settings = place.settings()?;
                let given = read_code()?;
                let key = node::key(&settings)?;
                if given.expose() != key.expose() {
                    return Err(Stop::KeyWrong { source_of_key: "this recovery code".to_owned() });
                }
                say!("the recovery code is that of the key");
            }
            KeyCommand::Import { place } => {
                let settings = place.settings()?;
                let key = read_code()?;
                let path = settings.key_path();
                if let Some(there) = keys::file::read(&path)? {
                    if there.expose() == key.expose() {
                        say!("{} holds this key already", path.display());
                        return Ok(());
                    }
                    return Err(Stop::KeyPresent { path });
                }
                if settings.key_file.is_none() {
                    place::make_dir(&settings.data, "--data")?;
                }
                keys::file::create(&path, &key)?;
                say!("the key is in {}", path.display());
            }
        }
        Ok(())
    }
}

fn read_code() -> Outcome<Key> {
    if let Some(text) = Secrets::from_environment().recovery_code {
        return code::decode(&text);
    }
    let mut stdin = std::io::stdin().lock();
    if stdin.is_terminal() {
        say_part!("Recovery code: ");
        let _ = std::io::stdout().flush();
    }
    let mut text = Zeroizing::new(String::new());
    let _ = stdin.read_line(&mut text);
    code::decode(&text)
}
