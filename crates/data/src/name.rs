//! Names of segment objects.

use tarn_base::ids::SegmentId;

/// The object's name below the shard's prefix: `segments/<low byte of counter>/<epoch>-<counter>`, all hexadecimal.
///
/// The counter's low byte comes first so that consecutive segments spread over 256 prefixes (or directories).
pub fn object_name(segment: SegmentId) -> String {
    format!("segments/{:02x}/{segment}", segment.counter & 0xff)
}

/// The segment that an object name stands for, if it is one.
pub fn parse_object_name(name: &str) -> Option<SegmentId> {
    let (epoch, counter) = name.rsplit('/').next()?.split_once('-')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let segment = SegmentId { epoch: number(epoch)?, counter: number(counter)? };
    // One spelling only: whatever does not come back is not a name of ours.
    (object_name(segment) == name).then_some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_back_and_no_other_spelling_is_taken() {
        let segment = SegmentId { epoch: 0x1f, counter: 0xabcd };
        assert_eq!(object_name(segment), "segments/cd/0000001f-0000abcd");
        assert_eq!(parse_object_name(&object_name(segment)), Some(segment));
        for other in [
            "segments/ce/0000001f-0000abcd",
            "0000001f-0000abcd",
            "segments/cd/1f-abcd",
            "segments/cd/0000001F-0000abcd",
            "",
        ] {
            assert_eq!(parse_object_name(other), None, "{other}");
        }
    }
}
