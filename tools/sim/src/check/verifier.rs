//! The write verifier changes with every opening that may have lost UNSTABLE data, and with no other.

use crate::failure::{Checked, Failure};

const NAME: &str = "verifier";

/// Verifiers given out so far.
#[derive(Clone, Debug, Default)]
pub struct Verifiers(Vec<[u8; 8]>);

impl Verifiers {
    /// The store was opened, after a clean close or not.
    pub fn opened(&mut self, verifier: [u8; 8], clean: bool) -> Checked {
        let Some(last) = self.0.last() else {
            self.0.push(verifier);
            return Ok(());
        };
        if clean && *last == verifier {
            return Ok(());
        }
        if clean {
            return Err(Failure::new(
                NAME,
                format!("{last:02x?}, as before the clean close"),
                format!("{verifier:02x?}"),
            ));
        }
        if self.0.contains(&verifier) {
            return Err(Failure::new(NAME, "a verifier never given out before", format!("{verifier:02x?}")));
        }
        self.0.push(verifier);
        Ok(())
    }
}
