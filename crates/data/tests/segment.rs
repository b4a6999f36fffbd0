//! Segments written and read: what comes back is what was written, or an error.

use std::sync::Arc;

use proptest::prelude::*;
use tarn_base::codec::Take;
use tarn_base::crypto::Key;
use tarn_base::ids::{SegmentId, Uuid};
use tarn_data::*;

const SALT: Salt = [3; 16];
const OTHER_SALT: Salt = [4; 16];

fn family() -> Arc<FamilyKey> {
    Arc::new(FamilyKey::new(Uuid([1; 16]), Key::new([2; 32])))
}

fn segment(epoch: u32, counter: u32) -> SegmentId {
    SegmentId { epoch, counter }
}

fn stored<'a>(object: &'a SegmentObject, pointer: &RecordPointer) -> &'a [u8] {
    &object.bytes[pointer.offset as usize..][..pointer.stored as usize]
}

fn built(id: SegmentId, salt: &Salt, records: &[Vec<u8>]) -> (SegmentObject, Vec<RecordPointer>) {
    let mut builder = SegmentBuilder::new(id, family(), salt, TARGET_SIZE_MIN);
    let settings = [Compression::Lz4, Compression::None, Compression::Zstd(3)];
    let pointers = records.iter().zip(settings.iter().cycle());
    let pointers = pointers.map(|(plain, setting)| builder.push(plain, *setting, 5, 6).unwrap()).collect();
    (builder.finish(), pointers)
}

fn samples() -> Vec<Vec<u8>> {
    let noise = |len: usize| blake3_noise(len);
    vec![b"hello".repeat(2000), noise(3000), Vec::new(), vec![0; 65536], noise(1), b"abc ".repeat(900)]
}

fn blake3_noise(len: usize) -> Vec<u8> {
    let key = FamilyKey::new(Uuid([9; 16]), Key::new([9; 32]));
    (0u32..).flat_map(|part| key.hash(&part.to_le_bytes())).take(len).collect()
}

#[test]
fn what_is_written_is_read() {
    let records = samples();
    let (object, pointers) = built(segment(7, 8), &SALT, &records);
    assert_eq!((object.name().as_str(), object.records), ("segments/08/00000007-00000008", records.len() as u32));
    let directory = Directory::read(&family(), segment(7, 8), &object.bytes).unwrap();
    assert_eq!(object.stored_bytes, pointers.iter().map(|pointer| u64::from(pointer.stored)).sum::<u64>());
    for ((plain, pointer), (index, record)) in records.iter().zip(&pointers).zip((0..).zip(&directory.records)) {
        assert_eq!(open_record(&family(), &SALT, pointer, stored(&object, pointer)).unwrap(), plain);
        assert_eq!((record.offset, record.stored, record.plain), (pointer.offset, pointer.stored, pointer.plain));
        assert_eq!((record.codec, record.tag, record.hash), (pointer.codec, pointer.tag, Some(family().hash(plain))));
        assert_eq!((pointer.index, pointer.born, pointer.generation), (index, 5, 6));
        assert_eq!(directory.name(index), Some((segment(7, 8), index)));
    }
    let codecs: Vec<_> = pointers.iter().map(|pointer| pointer.codec).collect();
    use Codec::{Lz4, Plain, Zstd};
    assert_eq!(codecs, [Lz4, Plain, Plain, Lz4, Plain, Zstd]);
}

#[test]
fn the_directory_opens_from_the_tail_alone() {
    let (object, _) = built(segment(7, 8), &SALT, &samples());
    let size = object.bytes.len();
    let footer = Footer::decode(&object.bytes[size - FOOTER_SIZE..], size as u64).unwrap();
    let sealed = &object.bytes[footer.directory as usize..size - FOOTER_SIZE];
    assert_eq!(sealed.len(), footer.directory_len as usize);
    let directory = Directory::open(&family().segment(&SALT, segment(7, 8)), &footer, sealed).unwrap();
    assert_eq!(directory, Directory::read(&family(), segment(7, 8), &object.bytes).unwrap());
    assert!(Footer::decode(&object.bytes, size as u64 + 1).is_err());
}

/// Every byte of the object belongs to something that notices.
#[test]
fn a_flipped_byte_anywhere_is_an_error_and_never_other_bytes() {
    let records = samples();
    let (object, pointers) = built(segment(1, 2), &SALT, &records);
    let good = Directory::read(&family(), segment(1, 2), &object.bytes).unwrap();
    let footer = Footer::decode(&object.bytes, object.bytes.len() as u64).unwrap();
    for at in (0..object.bytes.len()).filter(|at| at % 11 == 0 || *at < 200 || *at > object.bytes.len() - 700) {
        let mut bytes = object.bytes.to_vec();
        bytes[at] ^= 1 << (at % 8);
        let directory = Directory::read(&family(), segment(1, 2), &bytes);
        let in_records = at >= HEADER_SIZE && at < footer.directory as usize;
        assert_eq!(directory.is_ok(), in_records, "byte {at}");
        assert!(directory.is_err() || directory == Ok(good.clone()));
        for (plain, pointer) in records.iter().zip(&pointers) {
            let range = pointer.offset as usize..(pointer.offset + pointer.stored) as usize;
            let opened = open_record(&family(), &SALT, pointer, &bytes[range.clone()]);
            match range.contains(&at) {
                true => assert_eq!(opened, Err(DamageError::Sealed), "byte {at}"),
                false => assert_eq!(opened.unwrap(), plain),
            }
        }
    }
}

#[test]
fn bytes_of_another_place_do_not_open() {
    let records = vec![vec![b'x'; 100], vec![b'x'; 100]];
    let (object, pointers) = built(segment(1, 2), &SALT, &records);
    let (other, others) = built(segment(1, 3), &SALT, &records);
    let pointer = pointers[1];
    let bytes = stored(&object, &pointer);
    assert!(open_record(&family(), &SALT, &pointer, bytes).is_ok());
    let opens = |pointer: RecordPointer, bytes: &[u8]| open_record(&family(), &SALT, &pointer, bytes).is_ok();
    assert!(!opens(pointer, stored(&other, &others[1])));
    assert!(!opens(RecordPointer { index: 0, ..pointer }, bytes));
    assert!(!opens(RecordPointer { segment: segment(1, 3), ..pointer }, bytes));
    assert!(!opens(RecordPointer { plain: pointer.plain + 1, ..pointer }, bytes));
    assert!(!opens(RecordPointer { codec: Codec::Zstd, ..pointer }, bytes));
    assert!(!opens(pointer, &bytes[1..]));
    assert!(open_record(&family(), &OTHER_SALT, &pointer, bytes).is_err());
    let stranger = FamilyKey::new(Uuid([1; 16]), Key::new([3; 32]));
    assert!(open_record(&stranger, &SALT, &pointer, bytes).is_err());
    assert!(Directory::read(&stranger, segment(1, 2), &object.bytes).is_err());
    assert!(Directory::read(&family(), segment(1, 3), &object.bytes).is_err());
}

#[test]
fn a_moved_record_keeps_its_name_however_often_it_moves() {
    let records = samples();
    let (first, pointers) = built(segment(1, 2), &SALT, &records);
    let directory = Directory::read(&family(), segment(1, 2), &first.bytes).unwrap();
    let mut second = SegmentBuilder::new(segment(5, 1), family(), &OTHER_SALT, TARGET_SIZE_MIN);
    let own = second.push(b"its own", Compression::None, 1, 1).unwrap();
    let mut places = Vec::new();
    for index in [3u32, 0, 5] {
        let record = &directory.records[index as usize];
        let bytes = &first.bytes[record.offset as usize..][..record.stored as usize];
        let origin = Origin { segment: segment(1, 2), index, salt: SALT };
        places.push((index, second.push_moved(origin, record, bytes).unwrap()));
    }
    let second = second.finish();
    let moved = Directory::read(&family(), segment(5, 1), &second.bytes).unwrap();
    assert_eq!(moved.name(0), Some((segment(5, 1), 0)));
    assert!(own.open(&family().segment(&OTHER_SALT, segment(5, 1)), stored(&second, &own)).is_ok());
    let mut third = SegmentBuilder::new(segment(6, 1), family(), &[6; 16], TARGET_SIZE_MIN);
    for &(index, place) in &places {
        assert_eq!(moved.name(place.index), Some((segment(1, 2), index)));
        let record = &moved.records[place.index as usize];
        let bytes = &second.bytes[place.offset as usize..][..record.stored as usize];
        let pointer = &pointers[index as usize];
        assert_eq!(open_record(&family(), &SALT, pointer, bytes).unwrap(), records[index as usize]);
        let from = Origin { segment: segment(5, 1), index: place.index, salt: OTHER_SALT };
        third.push_moved(from, record, bytes).unwrap();
    }
    let third = third.finish();
    let again = Directory::read(&family(), segment(6, 1), &third.bytes).unwrap();
    for (now, (index, _)) in (0..).zip(&places) {
        let origin = again.records[now as usize].origin.unwrap();
        assert_eq!((origin.segment, origin.index, origin.salt), (segment(1, 2), *index, SALT));
    }
}

#[test]
fn a_builder_is_full_at_its_target_and_refuses_what_is_too_long() {
    let mut builder = SegmentBuilder::new(segment(1, 1), family(), &SALT, 1 << 20);
    let mut count = 0u64;
    while !builder.full() {
        builder.push(&blake3_noise(65536), Compression::Lz4, 0, 0).unwrap();
        count += 1;
    }
    assert_eq!(count, 16);
    assert!(builder.push(&vec![0; PLAIN_SIZE_MAX as usize + 1], Compression::Lz4, 0, 0).is_err());
    builder.push(&vec![0; RECORD_SIZE_MAX as usize], Compression::Lz4, 0, 0).unwrap();
    assert_eq!(builder.finish().records, 17);
}

#[test]
fn keys_are_kept_and_the_oldest_goes() {
    let cache = SegmentKeyCache::new(2);
    let get = |counter| cache.get(&family(), &SALT, segment(1, counter));
    let first = get(1);
    assert!(Arc::ptr_eq(&first, &get(1)));
    get(2);
    get(3);
    assert!(!Arc::ptr_eq(&first, &get(1)));
    let (object, pointers) = built(segment(1, 9), &SALT, &samples());
    assert!(pointers[0].open(&get(9), stored(&object, &pointers[0])).is_ok());
    assert!(matches!(pointers[0].open(&get(1), stored(&object, &pointers[0])), Err(DamageError::OtherSegment { .. })));
}

fn value(state: SegmentState, size: u32, dead: &[u32]) -> SegmentValue {
    let mut live = LiveSet::all(size);
    for &index in dead {
        live.remove(index % size.max(1));
    }
    let heat = Heat::from_records((0..size).map(|index| ((index % 8) as u8, index % 3 == 0)));
    let (object_size, live_bytes, shared, saved_bytes) = (1 << 24, 99, 7, 70_000);
    SegmentValue { family: Uuid([5; 16]), object_size, live_bytes, shared, saved_bytes, live, state, tier: 1, heat }
}

#[test]
fn heat_is_kept_per_record() {
    let value = value(SegmentState::Live, 9, &[]);
    let back = SegmentValue::decode(&value.encode()).unwrap();
    (0..9).for_each(|index| assert_eq!(back.heat.get(index), ((index % 8) as u8, index % 3 == 0)));
    assert_eq!(Heat::NONE.get(4), (0, false));
}

#[test]
fn killing_counts_each_record_once() {
    let (object, pointers) = built(segment(1, 2), &SALT, &samples());
    let mut value = SegmentValue::new(family().id(), &object);
    for pointer in &pointers {
        assert!(value.kill(pointer.index, pointer.stored));
        assert!(!value.kill(pointer.index, pointer.stored));
    }
    assert_eq!((value.live.count(), value.live_bytes), (0, 0));
}

fn any_state() -> impl Strategy<Value = SegmentState> {
    let forward =
        (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(epoch, counter, index, offset)| Forward {
            segment: SegmentId { epoch: epoch % 3, counter: counter % 3 },
            index,
            offset,
        });
    let records = prop::collection::btree_map(0..RECORDS_MAX, forward, 0..40);
    let forwarding = (any::<[u8; 16]>(), any::<Option<i64>>(), records).prop_map(|(salt, condemned_at_ms, records)| {
        SegmentState::Forwarding(Forwarding { salt, condemned_at_ms, records })
    });
    prop_oneof![Just(SegmentState::Live), any::<i64>().prop_map(|at_ms| SegmentState::Condemned { at_ms }), forwarding]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn any_records_come_back(records in prop::collection::vec(prop::collection::vec(0u8..8, 0..3000), 0..12)) {
        let (object, pointers) = built(segment(1, 2), &SALT, &records);
        for (plain, pointer) in records.iter().zip(&pointers) {
            let mut bytes = Vec::new();
            pointer.encode(&mut bytes);
            let pointer = RecordPointer::decode(&bytes).unwrap();
            prop_assert_eq!(&open_record(&family(), &SALT, &pointer, stored(&object, &pointer)).unwrap()[..], &plain[..]);
        }
    }

    #[test]
    fn any_pointer_comes_back(numbers in any::<[u32; 6]>(), plain in 1..=RECORD_SIZE_MAX, tag in any::<[u8; 16]>()) {
        let [epoch, counter, index, offset, born, generation] = numbers;
        let segment = SegmentId { epoch, counter };
        for (codec, stored) in [(Codec::Plain, plain), (Codec::Lz4, 1.max(plain / 2)), (Codec::Zstd, 1.max(plain / 3))] {
            let some = numbers[0] % (plain + 1);
            for (lost, zeros) in [(some, 0), (0, some), (0, 0)] {
                let pointer =
                    RecordPointer { segment, index, offset, stored, plain, lost, zeros, codec, born, generation, tag };
                let mut bytes = Vec::new();
                pointer.encode(&mut bytes);
                prop_assert!(bytes.len() <= 61);
                let back = RecordPointer::decode(&bytes);
                prop_assert_eq!(back.is_ok(), codec == Codec::Plain || stored < plain);
                prop_assert!(back.is_err() || back == Ok(pointer));
                bytes.push(0);
                prop_assert!(RecordPointer::decode(&bytes).is_err());
            }
        }
    }

    #[test]
    fn any_value_comes_back(state in any_state(), size in 0u32..2000, dead in prop::collection::vec(any::<u32>(), 0..300)) {
        let value = value(state, size, &dead);
        let bytes = value.encode();
        prop_assert_eq!(SegmentValue::decode(&bytes), Ok(value));
        for end in (0..bytes.len()).step_by(13) {
            prop_assert!(SegmentValue::decode(&bytes[..end]).is_err());
        }
    }

    #[test]
    fn decoders_judge_anything(mut bytes in prop::collection::vec(any::<u8>(), 0..300), first in 0u8..3) {
        let _ = RecordPointer::decode(&bytes);
        let _ = tarn_data::decoders::directory(&bytes);
        let _ = SegmentHeader::decode(&bytes);
        let _ = Footer::decode(&bytes, bytes.len() as u64);
        let _ = LiveSet::decode(&mut Take::new(&bytes));
        let _ = Forwarding::decode(&mut Take::new(&bytes));
        let _ = Directory::read(&family(), segment(1, 2), &bytes);
        if let Some(version) = bytes.first_mut() {
            *version = first;
        }
        let _ = RecordPointer::decode(&bytes);
        let _ = SegmentValue::decode(&bytes);
    }

    #[test]
    fn changed_values_are_judged(state in any_state(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = value(state, 70, &[3, 9]).encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = SegmentValue::decode(&bytes);
    }
}

/// A segment and a pointer into it as version 1 wrote them, with a moved record, and the value as version 2 did; never
/// edited.
#[test]
fn a_segment_of_version_1_still_opens() {
    let file = |name: &str| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let id = segment(0x1234, 0x5678);
    if std::env::var_os("WRITE_FIXTURE").is_some() {
        write_fixture(id, &|name, bytes| std::fs::write(file(name), bytes).unwrap());
    }
    let read = |name: &str| std::fs::read(file(name)).unwrap();
    let object = read("segment-1.bin");
    let directory = Directory::read(&family(), id, &object).unwrap();
    assert_eq!((directory.records.len(), directory.name(2)), (3, Some((segment(7, 8), 1))));
    let pointer = RecordPointer::decode(&read("pointer-1.bin")).unwrap();
    assert_eq!((pointer.segment, pointer.index, pointer.born, pointer.generation), (id, 0, 9, 70000));
    let bytes = &object[pointer.offset as usize..][..pointer.stored as usize];
    assert_eq!(open_record(&family(), &OTHER_SALT, &pointer, bytes).unwrap(), b"tarn ".repeat(100));
    let value = SegmentValue::decode(&read("segment-value-2.bin")).unwrap();
    assert_eq!((value.live.count(), value.object_size, value.heat.get(1)), (2, object.len() as u64, (6, true)));
    let SegmentState::Forwarding(forwarding) = value.state else { panic!("it forwards") };
    assert_eq!(forwarding.records[&2], Forward { segment: segment(8, 8), index: 40, offset: 50 });
}

fn write_fixture(id: SegmentId, write: &dyn Fn(&str, &[u8])) {
    let (old, _) = built(segment(7, 8), &SALT, &[b"first".to_vec(), b"second".repeat(40)]);
    let from = Directory::read(&family(), segment(7, 8), &old.bytes).unwrap();
    let mut builder = SegmentBuilder::new(id, family(), &OTHER_SALT, TARGET_SIZE_MIN);
    let pointer = builder.push(&b"tarn ".repeat(100), Compression::Zstd(3), 9, 70000).unwrap();
    builder.push(&b"lake ".repeat(100), Compression::Lz4, 9, 1).unwrap();
    let record = &from.records[1];
    let origin = Origin { segment: segment(7, 8), index: 1, salt: SALT };
    builder.push_moved(origin, record, &old.bytes[record.offset as usize..][..record.stored as usize]).unwrap();
    let object = builder.finish();
    let mut value = SegmentValue::new(family().id(), &object);
    value.kill(0, pointer.stored);
    value.heat = Heat::from_records([(1, false), (6, true), (7, false)].into_iter());
    let records = [(2, Forward { segment: segment(8, 8), index: 40, offset: 50 })].into();
    value.state = SegmentState::Forwarding(Forwarding { salt: SALT, condemned_at_ms: Some(-5), records });
    let mut bytes = Vec::new();
    pointer.encode(&mut bytes);
    write("segment-1.bin", &object.bytes);
    write("pointer-1.bin", &bytes);
    write("segment-value-2.bin", &value.encode());
}
