//! The entry functions of the fuzz targets, on a stable compiler, over the corpus and seeded
//! mutations of it.
#![cfg(not(feature = "model"))]

#[path = "../../../fuzz/readers.rs"]
mod readers;

use std::sync::Arc;

use drtm_testing::corpus::{self, corpus, fuzz, write};
use drtm_txn::{
    Builder, Db, Durability, IndexDef, Multi, Ordered, Pod, Raw, TableDef,
    durability::{
        format::{
            CHECKPOINT_END, CHECKPOINT_HEADER, CheckpointHeader, RecordKind, SEGMENT_HEADER, SegmentHeader, find_frame,
            number_of, read_frame, records, segment_name,
        },
        storage::{Access, Image, Storage},
    },
};

#[test]
fn the_reader_of_segments_stands_mutations() {
    fuzz("segment", readers::segment, 1);
}

#[test]
fn the_reader_of_checkpoints_stands_mutations() {
    fuzz("checkpoint", readers::checkpoint, 4);
}

#[test]
fn the_reader_of_records_stands_mutations() {
    fuzz("record", readers::record, 2);
}

#[test]
fn the_reader_of_the_catalog_stands_mutations() {
    fuzz("catalog", readers::catalog, 3);
}

/// Checks that the corpus has valid segments, and records of each kind. Rewrites it first on
/// request.
#[test]
fn the_corpus_is_of_this_format() {
    if corpus::is_rewritten() {
        write_corpus();
    }
    let (mut frames, mut kinds) = (0, Vec::new());
    for bytes in corpus("segment") {
        let Ok(SegmentHeader { log, sequence, .. }) = SegmentHeader::decode(&bytes) else { continue };
        let mut from = SEGMENT_HEADER;
        while let Some(at) = find_frame(&bytes, from, log, sequence) {
            frames += 1;
            from = at + 8;
        }
    }
    for bytes in corpus("record").into_iter().chain(ends()) {
        kinds.extend(records(&bytes).map_while(Result::ok).map(|(_, record)| record.kind));
    }
    assert!(frames >= 8, "{frames} frames");
    use RecordKind::{End, Index, IndexDropped, Note, Rows, Table, TableDropped, TableRenamed};
    for kind in [Rows, Table, Index, TableDropped, TableRenamed, IndexDropped, Note, End] {
        assert!(kinds.contains(&kind), "{kind:?}");
    }
}

/// Returns the records that end checkpoints.
fn ends() -> impl Iterator<Item = Vec<u8>> {
    corpus("checkpoint").into_iter().filter_map(|bytes| {
        let header = CheckpointHeader::decode(&bytes).ok()?;
        let offset = bytes.len().checked_sub(CHECKPOINT_END)?;
        Some(read_frame(&bytes[offset..], header.place(offset as u64)).ok()?.records.to_vec())
    })
}

const WORDS: TableDef<u64, Pod<[u64; 4]>> = TableDef::hash("words");
const TEXTS: TableDef<String, Raw, Ordered> = TableDef::ordered("texts");
const BY_FIRST: IndexDef<u64, Pod<[u64; 4]>, u64, Multi> = IndexDef::multi("words by first", |_, words| Some(words[0]));

/// Runs transactions that produce every kind of record content.
fn run(disk: &Image) {
    let builder = Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), 4 << 10);
    let db: Db = builder.durability(Durability::Sync).build().expect("a database");
    let (words, texts) = (db.table(WORDS).expect("a table"), db.table(TEXTS).expect("a table"));
    db.index(words, BY_FIRST).expect("an index");
    for number in 0..6_u64 {
        db.transact(|tx| {
            tx.put(words, number, &[number; 4])?;
            tx.put(texts, format!("text {number}"), &vec![number as u8; 10 * number as usize])
        })
        .expect("no fault");
        db.transact(|tx| tx.update(words, number / 2, |words| words[1] += 1).map(drop)).expect("no fault");
        db.transact(|tx| tx.remove(texts, format!("text {}", number / 3)).map(drop)).expect("no fault");
    }
    db.rename_table("texts", "renamed").expect("no fault");
    db.drop_table("renamed").expect("no fault");
    db.drop_index(BY_FIRST.name()).expect("no fault");
}

/// Notes something.
fn note(disk: &Image) {
    let builder = Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), 4 << 10);
    let db: Db = builder.durability(Durability::Sync).build().expect("it can be opened");
    db.note(b"a note").expect("no fault").wait().expect("no fault");
}

/// Writes a checkpoint of a disk's database, and parts of it.
fn write_checkpoint(disk: &Image) {
    let builder = Builder::new().memory(16 << 20).storage(Arc::new(disk.clone()), 4 << 10);
    let db: Db = builder.durability(Durability::Sync).build().expect("it can be opened");
    let texts = db.table(TEXTS).expect("a table");
    db.transact(|tx| (0..40).try_for_each(|number| tx.put(texts, format!("text {number}"), &[7; 50])))
        .expect("no fault");
    db.checkpoint().expect("no fault");
    let name = disk.list().expect("no fault").into_iter().find(|name| number_of(name).is_some());
    let file = Storage::open(disk, &name.expect("it was made"), Access::Read).expect("no fault");
    let bytes = file.read().expect("no fault");
    for (name, length) in
        [("whole", bytes.len()), ("torn", bytes.len() - 20), ("half", bytes.len() / 2), ("header", CHECKPOINT_HEADER)]
    {
        write("checkpoint", name, &bytes[..length]);
    }
}

fn write_corpus() {
    let disk = Image::default();
    run(&disk);
    let disk = disk.after_kill();
    run(&disk);
    write_checkpoint(&disk.after_kill());
    let disk = disk.after_kill();
    note(&disk);
    let mut number = 0;
    for sequence in 1.. {
        let Ok(bytes) = Storage::open(&disk, &segment_name(sequence), Access::Read).and_then(|file| file.read()) else {
            break;
        };
        let SegmentHeader { log, .. } = SegmentHeader::decode(&bytes).expect("a header");
        let (mut at, mut end) = (SEGMENT_HEADER, SEGMENT_HEADER);
        while let Some(offset) = find_frame(&bytes, at, log, sequence) {
            let place = drtm_txn::durability::format::Position { log, sequence, offset: offset as u64 };
            let frame = read_frame(&bytes[offset..], place).expect("it was found");
            for (_, record) in records(frame.records).map_while(Result::ok) {
                number += 1;
                // One record is most of a frame here.
                if record.kind == RecordKind::Rows {
                    write("record", &format!("rows-{number}"), frame.records);
                } else {
                    write("record", &format!("catalog-{number}"), frame.records);
                    write("catalog", &format!("record-{number}"), frame.records);
                    write("catalog", &format!("content-{number}"), &frame.records[24..]);
                }
            }
            at = offset + 8;
            end = offset + frame.length();
        }
        write("segment", &format!("whole-{sequence}"), &bytes[..end]);
        write("segment", &format!("torn-{sequence}"), &bytes[..(end - 20).max(SEGMENT_HEADER / 2)]);
    }
}
