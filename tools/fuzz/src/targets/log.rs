//! The log: header slots, the headers of frames, the list of entries in a frame's body, and a whole device.

use tarn_wal::decoders;

use super::{Target, mend_front, mend_last_four};

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("log-header", decoders::header, decoders::header_samples).mended(mend_last_four),
        Target::new("log-frame", decoders::frame, decoders::frame_samples).mended(mend_front::<96>),
        Target::new("log-entries", decoders::entries, decoders::entries_samples),
        Target::new("log-device", decoders::device, decoders::device_samples),
    ]
}
