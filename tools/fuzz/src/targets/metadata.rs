//! The engine's own: metadata keys and values, log entries, the owner record.

use tarn_engine::decoders;

use super::{Target, mend_last_four};

pub fn targets() -> Vec<Target> {
    let target = |decoder: &decoders::Decoder| {
        let target = Target::new(decoder.name, decoder.judge, decoder.samples);
        if decoder.checksum { target.mended(mend_last_four) } else { target }
    };
    decoders::ALL.iter().map(target).collect()
}
