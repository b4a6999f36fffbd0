//! `tarn scrub`: every stored byte is read and checked.

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Where, fsck};
use crate::admin::client;
use crate::exit::Outcome;
use crate::protocol::{Progress, Request, WalkView};

#[derive(Debug, Args)]
pub struct Scrub {
    #[command(flatten)]
    place: Where,
}

impl Scrub {
    pub fn run(self) -> Outcome<()> {
        let bar = bar();
        let walked: Outcome<WalkView> =
            client::ask_with(&self.place.data()?, &Request::Scrub, |step| show(&bar, &step));
        bar.finish_and_clear();
        fsck::report("scrub", &walked?)
    }
}

/// A bar on the terminal; nothing where there is none.
pub fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {elapsed}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| plain()))
}

fn plain() -> ProgressStyle {
    ProgressStyle::default_bar()
}

pub fn show(bar: &ProgressBar, step: &Progress) {
    if step.total > 0 {
        bar.set_length(step.total);
    } else if bar.length().is_some() {
        // No end is known: a bar would always be full.
        bar.unset_length();
        bar.set_style(ProgressStyle::with_template("{spinner} {pos} {msg} {elapsed}").unwrap_or_else(|_| plain()));
    }
    bar.set_message(step.unit.clone());
    bar.set_position(step.done);
}
