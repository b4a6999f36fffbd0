//! What must hold. One property a file.
//!
//! - `answers`: during life every operation answers as the model does.
//! - `promise`: a reply leaves after what it shows is durable, and nothing that was durable is missing.
//! - `tree`: after a recovery the tree is the model's at the recovered position.
//! - `bypass`: what of UNSTABLE data a crash may take, and what not.
//! - `locks`, `once`, `verifier`, `unstable`, `lost`, `numbers`: what else must survive, or must not.
//! - `listing`, `volumes`: cookies and volumes keep their meaning over changes and restarts.
//! - `grace`, `deposed`: what is refused after a loss of the log, and by whom.
//! - `damage`, `nonces`: what the log's format promises.
//! - `walk`, `usage`: the full consistency walk is clean, and what is charged is what is there.

pub mod answers;
pub mod bypass;
pub mod damage;
pub mod deposed;
pub mod grace;
pub mod listing;
pub mod locks;
pub mod lost;
pub mod nonces;
pub mod numbers;
pub mod once;
pub mod promise;
pub mod tree;
pub mod unstable;
pub mod usage;
pub mod verifier;
pub mod volumes;
pub mod walk;
