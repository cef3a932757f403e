//! The corpora of fuzz targets (`fuzz/`), run on a stable compiler: as they are, and mutated.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

/// Gives a reader each file of a target's corpus, and then seeded mutations of them, whose number
/// `DRTM_STRESS` multiplies.
///
/// # Panics
///
/// Panics where there is no corpus, or hardly any. What the reader panics for is a finding.
pub fn fuzz(target: &str, reader: fn(&[u8]), seed: u64) {
    let corpus = corpus(target);
    assert!(corpus.len() >= 4, "{} files of {target}", corpus.len());
    corpus.iter().for_each(|bytes| reader(bytes));
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..crate::rounds(20_000) {
        let mut bytes = corpus[random.usize(0..corpus.len())].clone();
        mutate(&mut bytes, &corpus[random.usize(0..corpus.len())], &mut random);
        reader(&bytes);
    }
}

/// The files of a target's corpus.
///
/// # Panics
///
/// Panics where they cannot be read.
#[must_use]
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> =
        fs::read_dir(place_of(target)).expect("a corpus").map(|file| file.expect("a file").path()).collect();
    files.sort();
    files.into_iter().map(|file| fs::read(file).expect("it can be read")).collect()
}

/// Whether tests are to write their corpora again, because a format has changed:
/// `DRTM_WRITE_CORPUS`.
#[must_use]
pub fn is_rewritten() -> bool {
    env::var_os("DRTM_WRITE_CORPUS").is_some()
}

/// Writes a file of a target's corpus.
///
/// # Panics
///
/// Panics where it cannot be written.
pub fn write(target: &str, name: &str, bytes: &[u8]) {
    fs::create_dir_all(place_of(target)).expect("a directory");
    fs::write(place_of(target).join(name), bytes).expect("space");
}

fn place_of(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

/// Changes some bytes, their number, or takes some of another file.
fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut fastrand::Rng) {
    for _ in 0..random.u8(1..4) {
        let at = random.usize(0..=bytes.len());
        match random.u8(0..7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.u8(0..8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.usize(0..5)],
            2 if at + 8 <= bytes.len() => {
                let number = [0, 1, u64::MAX, u64::MAX - 1, 1 << 63, random.u64(..)][random.usize(0..6)];
                bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
            }
            3 => bytes.truncate(at),
            4 => {
                let end = (at + random.usize(0..40)).min(bytes.len());
                drop(bytes.drain(at..end));
            }
            5 if !other.is_empty() => {
                let from = random.usize(0..other.len());
                let to = (from + random.usize(0..100)).min(other.len());
                drop(bytes.splice(at..at, other[from..to].iter().copied()));
            }
            _ => bytes.extend((0..random.usize(0..40)).map(|_| random.u8(..))),
        }
    }
}
