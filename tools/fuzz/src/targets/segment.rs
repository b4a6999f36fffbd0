//! Segments: header, footer, directory, whole objects, and what metadata keeps of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_base::crypto::Key;
use tarn_base::ids::{SegmentId, Uuid};
use tarn_data::{
    Codec, Compression, Directory, FOOTER_SIZE, FamilyKey, Footer, Forward, Forwarding, HEADER_SIZE, Heat, LiveSet,
    LostBytes, RecordPointer, SegmentBuilder, SegmentHeader, SegmentState, SegmentValue, decoders, object_name,
    parse_object_name,
};

use super::{Target, mend_front, mend_last_four};

const SALT: [u8; 16] = [7; 16];
const SEGMENT: SegmentId = SegmentId { epoch: 3, counter: 0x1234 };

pub fn targets() -> Vec<Target> {
    vec![
        Target::new("segment-header", header, || vec![encoded(|out| HEADER.encode(out))])
            .mended(mend_front::<HEADER_SIZE>),
        Target::new("segment-footer", footer, || vec![object()[object().len() - FOOTER_SIZE..].to_vec()])
            .mended(mend_last_four),
        Target::new("segment-directory", decoders::directory, decoders::directory_samples),
        Target::new("segment-object", whole, || vec![object()]).mended(mend_last_four),
        Target::new("segment-record", record, record_seeds),
        Target::new("segment-value", value, value_seeds),
        Target::new("segment-name", name, || vec![object_name(SEGMENT).into_bytes()]).words(&[
            "/",
            "-",
            "segments/",
            "+",
        ]),
        Target::new("record-pointer", pointer, pointer_seeds),
    ]
}

const HEADER: SegmentHeader = SegmentHeader { segment: SEGMENT, family: Uuid([5; 16]), salt: SALT };

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out
}

fn family() -> Arc<FamilyKey> {
    Arc::new(FamilyKey::new(Uuid([5; 16]), Key::new([9; 32])))
}

/// A small segment.
fn object() -> Vec<u8> {
    let mut builder = SegmentBuilder::new(SEGMENT, family(), &SALT, 4096);
    for plain in [&b"the first record"[..], &[0; 2000], b"the third"] {
        builder.push(plain, Compression::Lz4, 1, 1).expect("a segment has room for three records");
    }
    builder.finish().bytes.to_vec()
}

fn header(bytes: &[u8]) -> bool {
    let Ok(header) = SegmentHeader::decode(bytes) else { return false };
    assert_eq!(encoded(|out| header.encode(out)), bytes[..HEADER_SIZE]);
    true
}

/// The size of the object is what the footer says, or else nothing would be valid but the seed.
fn footer(bytes: &[u8]) -> bool {
    let number = |at: usize| {
        bytes.get(at..at + 4).map_or(0, |part| u64::from(u32::from_le_bytes([part[0], part[1], part[2], part[3]])))
    };
    let at = bytes.len().saturating_sub(FOOTER_SIZE);
    let size = number(at + 24) + number(at + 28) + FOOTER_SIZE as u64;
    let Ok(footer) = Footer::decode(bytes, size) else { return false };
    assert_eq!(encoded(|out| footer.encode(out)), bytes[at..]);
    true
}

fn whole(bytes: &[u8]) -> bool {
    let family = FamilyKey::new(Uuid([5; 16]), Key::new([9; 32]));
    let Ok(directory) = Directory::read(&family, SEGMENT, bytes) else { return false };
    for (index, record) in (0u32..).zip(&directory.records) {
        let stored = &bytes[record.offset as usize..][..record.stored as usize];
        let key = family.segment(&SALT, SEGMENT);
        let _ = key.open(index, record.codec, record.plain, &record.tag, stored);
        directory.name(index);
    }
    true
}

/// Codec and length first, then what is to be expanded: what a decompressor sees behind the seal.
fn record(bytes: &[u8]) -> bool {
    let Some((head, packed)) = bytes.split_first_chunk::<4>() else { return false };
    let plain = u32::from_le_bytes([head[1], head[2], head[3], 0]).min(tarn_data::RECORD_SIZE_MAX);
    decoders::expand(head[0] % 3, plain, packed)
}

fn record_seeds() -> Vec<Vec<u8>> {
    let text = b"the quick brown fox ".repeat(50);
    let mut compressor = tarn_data::Compressor::default();
    let mut seeds = Vec::new();
    for setting in [Compression::None, Compression::Lz4, Compression::Zstd(3)] {
        let (codec, packed) = compressor.compress(&text, setting);
        let len = (text.len() as u32).to_le_bytes();
        seeds.push([&[codec.code(), len[0], len[1], len[2]], packed].concat());
    }
    seeds
}

fn value(bytes: &[u8]) -> bool {
    let Ok(value) = SegmentValue::decode(bytes) else { return false };
    assert_eq!(SegmentValue::decode(&value.encode()).as_ref(), Ok(&value));
    assert_eq!(value.live.iter().count(), value.live.count() as usize, "the count of a live set");
    true
}

fn value_seeds() -> Vec<Vec<u8>> {
    let mut few = LiveSet::all(1000);
    (0..1000).step_by(100).for_each(|index| {
        few.remove(index);
    });
    let mut half = LiveSet::none(300);
    (0..300).step_by(2).for_each(|index| {
        half.insert(index);
    });
    let mut one = LiveSet::none(500);
    one.insert(499);
    let forward = |index| Forward { segment: SegmentId { epoch: 4, counter: index }, index, offset: 56 * index };
    let records: BTreeMap<u32, Forward> = [3, 4, 90].map(|index| (index, forward(index))).into();
    let moved = Forwarding { salt: SALT, condemned_at_ms: Some(5), records };
    let states = [
        (few, SegmentState::Live, Heat::NONE),
        (half, SegmentState::Condemned { at_ms: 77 }, Heat::from_records((0..300).map(|n| (n as u8, n % 3 == 0)))),
        (one, SegmentState::Forwarding(moved), Heat::NONE),
        (LiveSet::all(4096), SegmentState::Live, Heat::NONE),
    ];
    let make = |(live, state, heat)| {
        let (object_size, live_bytes, shared, saved_bytes) = (16 << 20, 1 << 20, 3, 12288);
        SegmentValue { family: Uuid([5; 16]), object_size, live_bytes, shared, saved_bytes, live, state, tier: 0, heat }
            .encode()
    };
    states.map(make).to_vec()
}

fn name(bytes: &[u8]) -> bool {
    let Some(segment) = std::str::from_utf8(bytes).ok().and_then(parse_object_name) else { return false };
    assert_eq!(object_name(segment).as_bytes(), bytes);
    true
}

fn pointer(bytes: &[u8]) -> bool {
    let Ok(pointer) = RecordPointer::decode(bytes) else { return false };
    assert_eq!(RecordPointer::decode(&encoded(|out| pointer.encode(out))), Ok(pointer));
    if let Ok(lost) = LostBytes::of(&pointer, bytes) {
        assert!(lost.count() <= bytes.len() as u64);
    }
    true
}

fn pointer_seeds() -> Vec<Vec<u8>> {
    let plain = RecordPointer { segment: SEGMENT, stored: 9, plain: 9, ..RecordPointer::default() };
    let packed = RecordPointer {
        index: u32::MAX,
        offset: 1 << 24,
        stored: 30_000,
        plain: 65_536,
        codec: Codec::Lz4,
        born: 5,
        generation: 6,
        tag: [1; 16],
        ..plain
    };
    let sparse = RecordPointer { zeros: 57_344, ..packed };
    let lost = RecordPointer { lost: 7, ..packed };
    [plain, packed, sparse, lost].map(|pointer| encoded(|out| pointer.encode(out))).to_vec()
}
