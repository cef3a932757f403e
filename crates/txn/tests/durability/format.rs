//! The log's bytes: encoding round trips, and other bytes are rejected.

use std::sync::Arc;

use drtm_htm::NoHtm;
use drtm_txn::{
    Config, Db, Durability, Error, LogError, Mutation,
    durability::{
        format::{
            CatalogChange, Change, Entry, FRAME_HEADER, Frame, HeaderError, Position, RecordKind, RecordWriter,
            SEGMENT_HEADER, SegmentHeader, TableShape, begin_frame, find_frame, finish_frame, read_frame, records,
            segment_name, sequence_of,
        },
        storage::{Access, Image, Storage},
    },
    part,
};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::{Pair, Rows, Sound, Tables, builder, open, open_with};

#[derive(Clone, Debug)]
enum OwnChange {
    Put(Vec<u8>),
    Patch(u64, u32, Vec<u8>),
    Remove,
}

type OwnEntry = (u16, Vec<u8>, u64, OwnChange);

fn entries() -> impl Strategy<Value = Vec<OwnEntry>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..40);
    let change = prop_oneof![
        bytes().prop_map(OwnChange::Put),
        (any::<u64>(), any::<u32>(), bytes())
            .prop_map(|(previous, offset, bytes)| OwnChange::Patch(previous, offset, bytes)),
        Just(OwnChange::Remove),
    ];
    prop::collection::vec((any::<u16>(), bytes(), any::<u64>(), change), 0..6)
}

fn borrowed((table, key, version, change): &OwnEntry) -> Entry<'_> {
    let change = match change {
        OwnChange::Put(value) => Change::Put(value),
        OwnChange::Patch(previous, offset, bytes) => Change::Patch { previous: *previous, offset: *offset, bytes },
        OwnChange::Remove => Change::Remove,
    };
    Entry { table: *table, key, version: *version, change }
}

fn append(bytes: &mut Vec<u8>, epoch: u64, entries: &[OwnEntry]) {
    let mut record = RecordWriter::begin(bytes, epoch, RecordKind::Rows);
    entries.iter().for_each(|entry| record.entry(&borrowed(entry)).expect("it is short"));
    record.finish().expect("it is short");
}

const PLACE: Position = Position { log: 7, sequence: 3, offset: 64 };

proptest! {
    #[test]
    fn frames_and_records_come_back(all in prop::collection::vec((any::<u64>(), entries()), 0..5), closes: u64, previous: u64) {
        let mut bytes = Vec::new();
        begin_frame(&mut bytes);
        all.iter().for_each(|(epoch, entries)| append(&mut bytes, *epoch, entries));
        finish_frame(&mut bytes, PLACE, closes, previous);
        let frame = read_frame(&bytes, PLACE).expect("it was written");
        prop_assert_eq!((frame.closes, frame.previous, frame.length()), (closes, previous, bytes.len()));
        let read: Vec<_> = records(frame.records).map(|record| record.expect("it was written").1).collect();
        prop_assert_eq!(read.len(), all.len());
        for (record, (epoch, entries)) in read.iter().zip(&all) {
            prop_assert_eq!((record.epoch, record.kind), (*epoch, RecordKind::Rows));
            let read: Vec<_> = record.entries().map(|entry| entry.expect("it was written")).collect();
            prop_assert_eq!(read, entries.iter().map(borrowed).collect::<Vec<_>>());
            for encoded in record.encoded_entries() {
                let (entry, encoded) = encoded.expect("it was written");
                prop_assert_eq!(Entry::decode(*epoch, encoded), Some(entry));
                prop_assert_eq!(Entry::decode(*epoch, &encoded[..encoded.len() - 1]), None);
            }
        }
        // The same bytes anywhere else are no frame: recycled memory is rejected.
        for other in [Position { log: 8, ..PLACE }, Position { sequence: 2, ..PLACE }, Position { offset: 72, ..PLACE }] {
            prop_assert!(read_frame(&bytes, other).is_err());
        }
        let mut segment = vec![0; 64];
        segment.extend_from_slice(&bytes);
        prop_assert_eq!(find_frame(&segment, 1, PLACE.log, PLACE.sequence), Some(64));
        prop_assert_eq!(find_frame(&segment, 1, PLACE.log, 2), None);
    }

    #[test]
    fn noise_is_refused_and_never_a_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_frame(&noise, PLACE).is_err());
        prop_assert!(SegmentHeader::decode(&noise).is_err());
        for record in records(&noise) {
            prop_assert!(record.is_err());
        }
    }

    #[test]
    fn records_are_refused_when_a_bit_is_flipped_or_the_end_is_missing(entries in entries(), bit: prop::sample::Index) {
        let mut bytes = Vec::new();
        append(&mut bytes, 5, &entries);
        let first = |bytes: &[u8]| records(bytes).next().map(|record| record.is_ok());
        prop_assert_eq!(first(&bytes), Some(true));
        prop_assert_ne!(first(&bytes[..bit.index(bytes.len())]), Some(true));
        let bit = bit.index(8 * bytes.len());
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(first(&bytes), Some(false));
    }

    #[test]
    fn a_record_with_a_damaged_count_ends_at_the_first_damage(entries in entries(), count in prop_oneof![0..9_u32, any::<u32>()]) {
        let mut bytes = Vec::new();
        append(&mut bytes, 5, &entries);
        bytes[16..20].copy_from_slice(&count.to_le_bytes());
        let checksum = xxh3_64(&bytes[8..]) as u32;
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        let (_, record) = records(&bytes).next().expect("a record").expect("its checksum is right");
        prop_assert_eq!(record.entries().size_hint(), (0, None), "nothing is reserved for a count");
        let read: Vec<_> = record.entries().take(entries.len() + 2).collect();
        let is_right = count as usize == entries.len();
        let whole = read.iter().map_while(|entry| entry.as_ref().ok()).count();
        // Padding that is no entry can only be damage, because it is shorter than one.
        prop_assert_eq!(whole, entries.len().min(count as usize));
        prop_assert_eq!(read.len(), whole + usize::from(!is_right), "one error, and it is the last");
        for (entry, own) in read.iter().flatten().zip(&entries) {
            prop_assert_eq!(*entry, borrowed(own));
        }
    }

    #[test]
    fn changes_of_the_catalog_come_back(name: String, key: String, codec: String, is_ordered: bool, key_size: Option<u16>, value_size: Option<u16>, id: u16, types: String, note: Vec<u8>) {
        let (key_size, value_size) = (key_size.map(u32::from), value_size.map(u32::from));
        let shape = TableShape { name: name.clone(), is_ordered, key_size, value_size, key, codec, types };
        let of_tables = [CatalogChange::Table(id, shape), CatalogChange::TableDropped(id), CatalogChange::TableRenamed(id, name.clone())];
        for change in of_tables.into_iter().chain([CatalogChange::Index(id, name.clone()), CatalogChange::IndexDropped(id, name), CatalogChange::Noted(note)]) {
            let mut bytes = Vec::new();
            change.encode(&mut bytes, 9).expect("the names are short");
            let (_, record) = records(&bytes).next().expect("a record").expect("it was written");
            prop_assert!(record.kind.is_of_catalog() && change.table().is_none_or(|table| table == id));
            prop_assert_eq!((record.epoch, CatalogChange::decode(&record)), (9, Ok(change)));
        }
    }

    #[test]
    fn headers_of_segments_come_back(log: u128, sequence: u64, after: u64, begins: u64) {
        let header = SegmentHeader { log, sequence, after, begins };
        prop_assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        prop_assert_eq!(sequence_of(&segment_name(sequence)), Some(sequence));
    }
}

/// Checks the bytes of changes against `docs/format.md`.
#[test]
fn changes_of_the_catalog_are_byte_exact() {
    let bytes_of = |change: CatalogChange| {
        let mut bytes = Vec::new();
        change.encode(&mut bytes, 9).expect("the names are short");
        let kind = u16::from_le_bytes([bytes[22], bytes[23]]);
        (kind, bytes[24..bytes.len() - 8].to_vec())
    };
    let ab = || "ab".to_owned();
    let (key, codec, types) = ("u64".to_owned(), "raw".to_owned(), "of".to_owned());
    let (key_size, value_size) = (Some(8), None);
    let shape = TableShape { name: ab(), is_ordered: true, key_size, value_size, key, codec, types };
    let sizes = [8, 0, 0, 0, 255, 255, 255, 255, 2, 0, 3, 0, 3, 0, 2, 0];
    let bytes = [&[2, 1, 1, 0][..], &sizes, b"abu64rawof", &[0; 2]].concat();
    assert_eq!(bytes_of(CatalogChange::Table(258, shape)), (2, bytes));
    assert_eq!(bytes_of(CatalogChange::Index(258, ab())), (3, vec![2, 1, 2, 0, b'a', b'b', 0, 0]));
    assert_eq!(bytes_of(CatalogChange::TableDropped(258)), (5, vec![2, 1, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bytes_of(CatalogChange::TableRenamed(258, ab())), (6, vec![2, 1, 2, 0, b'a', b'b', 0, 0]));
    assert_eq!(bytes_of(CatalogChange::IndexDropped(258, ab())), (7, vec![2, 1, 2, 0, b'a', b'b', 0, 0]));
    assert_eq!(bytes_of(CatalogChange::Noted(b"ab".to_vec())), (9, vec![2, 0, 0, 0, b'a', b'b', 0, 0]));
}

/// Checks the bytes of entries against `docs/format.md`.
#[test]
fn entries_are_byte_exact() {
    let mut bytes = Vec::new();
    let entries = [
        (5, vec![1, 2], 3 << 16, OwnChange::Put(b"put".to_vec())),
        (5, vec![1, 3], (3 << 16) + 1, OwnChange::Patch((3 << 16) - 299, 200, b"pa".to_vec())),
        (300, vec![], (3 << 16) - 1, OwnChange::Remove),
    ];
    append(&mut bytes, 3, &entries);
    let put = [5 << 2 | 1, 2, 0, 3, 1, 2, b'p', b'u', b't'];
    let patch = [5 << 2 | 2, 2, 2, 0xac, 2, 0xc8, 1, 2, 1, 3, b'p', b'a'];
    let removal = [0xb3, 9, 0, 1];
    let content = [&put[..], &patch, &removal, &[0; 7]].concat();
    let length = 24 + content.len() + 8;
    assert_eq!((bytes.len(), &bytes[16..24]), (length, &[3, 0, 0, 0, 2, 0, 1, 0][..]));
    assert_eq!(bytes[24..length - 8], content);
}

#[test]
fn another_format_is_refused_by_name() {
    let mut bytes = SegmentHeader { log: 1, sequence: 1, after: 0, begins: 1 }.encode();
    bytes[8] = 9;
    let checksum = xxh3_64(&bytes[..60]) as u32;
    bytes[60..].copy_from_slice(&checksum.to_le_bytes());
    assert_eq!(SegmentHeader::decode(&bytes), Err(HeaderError::OtherFormat { found: 9 }));
    let disk = Image::default();
    disk.create(&segment_name(1)).and_then(|file| file.write_at(0, &bytes)).expect("it has no fault");
    match open(&disk) {
        Err(Error::Log(LogError::OtherFormat { found: 9, reads: 5, file })) => assert_eq!(file, segment_name(1)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_header_has_nothing_but_what_is_written() {
    let sound = SegmentHeader { log: 1, sequence: 1, after: 0, begins: 1 }.encode();
    for at in [12, 15, 56, 59] {
        let mut bytes = sound;
        bytes[at] ^= 1;
        let checksum = xxh3_64(&bytes[..60]) as u32;
        bytes[60..].copy_from_slice(&checksum.to_le_bytes());
        assert!(matches!(SegmentHeader::decode(&bytes), Err(HeaderError::Damaged(_))), "byte {at}");
    }
}

/// Returns a small log of several frames, and the rows after each transaction.
fn small_log() -> (Image, Vec<Rows>) {
    let disk = Image::default();
    let db = open(&disk).expect("a database");
    let tables = Tables::of(&db).expect("tables");
    let mut after = vec![Rows::none()];
    for number in 0..4_u64 {
        let pair = Pair { first: number, second: 1 };
        db.transact(|tx| {
            tx.put(tables.pairs, number as u32 % 2, &pair)?;
            tx.put(tables.texts, "text".to_owned(), &[number as u8; 5])
        })
        .expect("it has no fault");
        after.push(tables.rows().expect("memory"));
    }
    db.close().expect("it has no fault");
    (disk, after)
}

fn check_damaged(disk: &Image, after: &[Rows], why: &str) -> bool {
    match open(disk) {
        Err(Error::Log(LogError::Damaged { .. } | LogError::OtherFormat { .. })) => false,
        Err(error) => panic!("{why}: {error}"),
        Ok(db) => {
            let rows = Tables::of(&db).and_then(|tables| tables.rows()).expect("memory");
            assert!(after.contains(&rows), "{why}: {rows:?}");
            true
        }
    }
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused_or_leaves_a_prefix() {
    let (disk, after) = small_log();
    let name = segment_name(1);
    let bytes = Storage::open(&disk, &name, Access::Read).and_then(|file| file.read()).expect("it is there");
    let (mut opened, mut refused) = (0, 0);
    for length in 0..bytes.len() {
        let disk = disk.after_kill();
        disk.damage(&name, |bytes| bytes.truncate(length));
        match check_damaged(&disk, &after, &format!("cut off at {length}")) {
            true => opened += 1,
            false => refused += 1,
        }
    }
    assert_eq!((opened, refused), (bytes.len() - SEGMENT_HEADER, SEGMENT_HEADER));
    let last = {
        let mut starts = Vec::new();
        let header = SegmentHeader::decode(&bytes).expect("a header");
        let mut from = SEGMENT_HEADER;
        while let Some(start) = find_frame(&bytes, from, header.log, 1) {
            starts.push(start);
            from = start + FRAME_HEADER;
        }
        starts.pop().expect("there are frames")
    };
    for bit in 0..8 * bytes.len() {
        let disk = disk.after_kill();
        disk.damage(&name, |bytes| bytes[bit / 8] ^= 1 << (bit % 8));
        let is_opened = check_damaged(&disk, &after, &format!("bit {bit} flipped"));
        assert_eq!(is_opened, bit / 8 >= last, "bit {bit}: damage is noticed unless it is of the last frame");
    }
}

/// Of a value that is written in place, only what differs from the one before is logged.
#[test]
fn what_does_not_change_is_not_logged() {
    let disk = Image::default();
    let db = open(&disk).expect("a database");
    let tables = Tables::of(&db).expect("tables");
    let mut value = vec![7; 1000];
    let put = |value: &[u8]| db.transact(|tx| tx.put(tables.texts, "text".to_owned(), value)).expect("it has no fault");
    put(&value);
    (value[501], value[517]) = (8, 8);
    put(&value);
    put(&value);
    value.iter_mut().for_each(|byte| *byte ^= 1);
    put(&value);
    put(&[7; 20]);
    db.transact(|tx| tx.put(tables.pairs, 1, &Pair { first: 1, second: 2 })).expect("it has no fault");
    let second = tables.pairs.column(part!(Pair, second));
    db.transact(|tx| tx.update(second, 1, |second| *second += 256)).expect("it has no fault");
    db.close().expect("it has no fault");

    let mut logged = Vec::new();
    let bytes = disk.clone();
    for number in 1.. {
        let Ok(file) = Storage::open(&bytes, &segment_name(number), Access::Read) else { break };
        let bytes = file.read().expect("it is there");
        let log = SegmentHeader::decode(&bytes).expect("a header").log;
        let mut at = SEGMENT_HEADER;
        while let Ok(frame) = read_frame(&bytes[at..], Position { log, sequence: number, offset: at as u64 }) {
            at += frame.length();
            let rows = records(frame.records).map(|record| record.expect("it is whole").1);
            for record in rows.filter(|record| record.kind == RecordKind::Rows) {
                logged.extend(record.entries().map(|entry| match entry.expect("it is whole").change {
                    Change::Put(value) => (None, value.len()),
                    Change::Patch { offset, bytes, .. } => (Some(offset), bytes.len()),
                    Change::Remove => panic!("nothing is removed"),
                }));
            }
        }
    }
    let puts = |length| (None, length);
    let expected = [puts(1000), (Some(496), 24), (Some(0), 0), puts(1000), puts(20), puts(16), (Some(8), 8)];
    assert_eq!(logged, expected);
}

/// Returns a log with one patch of a missing version.
fn log_with_a_gap() -> Image {
    let (disk, _) = small_log();
    let name = segment_name(1);
    disk.damage(&name, |bytes| {
        let header = SegmentHeader::decode(bytes).expect("a header");
        let mut at = SEGMENT_HEADER;
        let mut closed = 0;
        loop {
            let place = Position { log: header.log, sequence: 1, offset: at as u64 };
            match read_frame(&bytes[at..], place) {
                Ok(Frame { closes, .. }) => {
                    closed = closes;
                    at += read_frame(&bytes[at..], place).expect("it was just read").length();
                }
                Err(_) => break,
            }
        }
        let mut frame = Vec::new();
        begin_frame(&mut frame);
        let key = 0_u32.to_be_bytes().to_vec();
        append(
            &mut frame,
            closed + 1,
            &[(0, key, (closed + 1) << 16, OwnChange::Patch(closed << 16 | 77, 8, vec![1; 8]))],
        );
        finish_frame(&mut frame, Position { log: header.log, sequence: 1, offset: at as u64 }, closed + 1, closed);
        bytes.truncate(at);
        bytes.extend_from_slice(&frame);
    });
    disk
}

#[test]
fn a_patch_that_lacks_the_version_before_it_is_damage() {
    match open(&log_with_a_gap()) {
        Err(Error::Log(LogError::Damaged { why, .. })) => assert!(why.contains("patch"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(
        open_with(&log_with_a_gap(), Some(Mutation::PreviousNotChecked)).is_ok(),
        "the fault is that nothing looks"
    );
}

#[test]
fn the_setting_of_a_directory_must_make_sense() {
    let refused = |builder: drtm_txn::Builder| matches!(builder.build(), Err(Error::Config { .. }));
    assert!(refused(Db::builder().durability(Durability::Sync)));
    assert!(refused(builder(&Image::default(), Durability::None)));
    assert!(Sound::fault().is_none());
    let _: Arc<dyn Storage> = Arc::new(Image::default());
    let _ = NoHtm;
}
