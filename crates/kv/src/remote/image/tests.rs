//! Every mixture of what a record's memory has held is either one of those records, or not believed.

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::Offset;
use proptest::prelude::*;

use super::{Image, Keys, LEAST_WORDS};
use crate::{
    Bytes, Current, HashConfig, HashTable, Inline, KvTable, MAX_VALUE, Nowhere, Store, Version,
    layout::Place,
    record::{HEADER_WORDS, STATE},
};

/// Words of a size class, in which all these records are.
const WORDS: usize = 48;

/// What the memory has held at some moments, and the values that were there.
struct Memory {
    incarnation: u16,
    images: Vec<[u64; WORDS]>,
    /// In the incarnation looked for.
    values: Vec<(Version, Vec<u8>)>,
}

fn place_of<K: Keys>(table: &HashTable<NoHtm, K>, key: K::Key<'_>) -> Place {
    table.read(key, Current, &mut Nowhere).expect("sound").expect("it is there").at.place()
}

/// A record of `key` with some values, one of them being written, and then another key's in the same memory.
fn remember<K: Keys>(key: K::Key<'_>, other: K::Key<'_>, lengths: &[usize]) -> Memory {
    let store = Store::in_memory(NoHtm, 16 << 20).expect("a store");
    let table = store.hash_table_of::<K>(HashConfig::default().for_peers()).expect("a table");
    let mut worker = store.worker().expect("a worker");
    let mut memory = Memory { incarnation: 0, images: Vec::new(), values: Vec::new() };
    let mut place = None;
    let keep = |place: Place, memory: &mut Memory| {
        let words = store.region().words(Offset::new(8 * place.word), WORDS).expect("allocated");
        memory.images.push(std::array::from_fn(|word| NoHtm.load(&words[word])));
    };
    for (turn, length) in lengths.iter().enumerate() {
        let value: Vec<u8> = (0..*length).map(|at| (turn * 50 + at) as u8).collect();
        let version = table.put(&mut worker, key, &value).expect("room");
        let at = place_of(&table, key);
        assert_eq!(*place.get_or_insert(at), at, "it has moved: these lengths are of different classes");
        memory.values.push((version, value));
        keep(at, &mut memory);
        let mut writing = *memory.images.last().expect("kept above");
        writing[crate::record::VERSION] |= 1;
        memory.images.push(writing);
    }
    let place = place.expect("one length at least");
    memory.incarnation = place.incarnation;
    table.remove(&mut worker, key).expect("sound").expect("it is there");
    keep(place, &mut memory);
    table.insert(&mut worker, other, &vec![9; lengths[0]]).expect("room").expect("new");
    assert_eq!(place_of(&table, other).word, place.word, "the memory was to be used again");
    keep(place, &mut memory);
    memory
}

fn is_right<K: Keys>(memory: &Memory, choices: &[usize], key: K::Key<'_>, words: usize) -> Result<(), TestCaseError> {
    let mixed: Vec<u64> = choices
        .iter()
        .take(words)
        .enumerate()
        .map(|(word, image)| memory.images[image % memory.images.len()][word])
        .collect();
    let mut value = Vec::new();
    if let Image::Whole(whole) = Image::of::<K>(&mixed, memory.incarnation, key, &mut value) {
        prop_assert!(memory.values.contains(&(whole.version, value)), "{whole:?}");
    }
    Ok(())
}

/// From which image each word comes: any; or all but a few from one, which is the more dangerous.
fn choices() -> impl Strategy<Value = Vec<usize>> {
    prop_oneof![
        prop::collection::vec(0..20_usize, WORDS),
        (0..20_usize, prop::collection::vec((0..WORDS, 0..20_usize), 0..4)).prop_map(|(most, others)| {
            let mut choices = vec![most; WORDS];
            others.into_iter().for_each(|(word, image)| choices[word] = image);
            choices
        }),
    ]
}

proptest! {
    #[test]
    fn no_mixture_of_images_is_believed(choices in choices(), words in 0..=WORDS) {
        // Thread-local, since making them takes longer than looking at them.
        thread_local! {
            static INLINE: Memory = remember::<Inline>(7, 8, &[300, 299, 297, 300]);
            static BYTES: Memory = remember::<Bytes>(b"somebody's name", b"another's name.", &[280, 275, 280]);
        }
        INLINE.with(|memory| is_right::<Inline>(memory, &choices, 7, words))?;
        BYTES.with(|memory| is_right::<Bytes>(memory, &choices, b"somebody's name", words))?;
    }

    #[test]
    fn any_words_can_be_looked_at(mut words in prop::collection::vec(any::<u64>(), 0..40), incarnation in 0..1_u16 << 14, plausible: bool) {
        if plausible && words.len() >= LEAST_WORDS {
            // A record that could be, but for its checksum.
            words[crate::record::VERSION] &= !3;
            words[crate::record::HEAD] = crate::Head::new(incarnation, None).checked().0;
            words[HEADER_WORDS] &= 0xFFFF_0001_FFFF;
        }
        let mut value = Vec::new();
        for image in [
            Image::of::<Inline>(&words, incarnation, 7, &mut value),
            Image::of::<Bytes>(&words, incarnation, b"seven", &mut value),
        ] {
            prop_assert!(!matches!(image, Image::Whole(_) | Image::Other));
            if let Image::Longer(length, _) = image {
                prop_assert!(length > words.len() && length <= 2 + HEADER_WORDS + (crate::MAX_KEY + MAX_VALUE) / 8);
            }
        }
    }
}

#[test]
fn each_image_by_itself_is_what_it_is() {
    let memory = remember::<Inline>(7, 8, &[300, 299, 297, 300]);
    let mut value = Vec::new();
    for (turn, pair) in memory.images[..8].as_chunks::<2>().0.iter().enumerate() {
        let Image::Whole(whole) = Image::of::<Inline>(&pair[0], memory.incarnation, 7, &mut value) else {
            panic!("version {turn} was there");
        };
        assert_eq!((whole.version, &value), (memory.values[turn].0, &memory.values[turn].1));
        // Whether it is locked does not matter.
        let mut locked = pair[0];
        locked[STATE] = 0xABC;
        assert!(matches!(Image::of::<Inline>(&locked, memory.incarnation, 7, &mut value), Image::Whole(_)));
        assert_eq!(Image::of::<Inline>(&pair[0], memory.incarnation, 8, &mut value), Image::Stale);
        assert_eq!(Image::of::<Inline>(&pair[1], memory.incarnation, 7, &mut value), Image::Writing);
    }
    for gone in &memory.images[8..] {
        assert_eq!(Image::of::<Inline>(gone, memory.incarnation, 7, &mut value), Image::Stale);
    }
    let last = memory.images.last().expect("another key's");
    let next = memory.incarnation + 1;
    assert!(matches!(Image::of::<Inline>(last, next, 8, &mut value), Image::Whole(_)));
    assert_eq!(Image::of::<Inline>(&last[..3], next, 8, &mut value), Image::Longer(LEAST_WORDS, Version::default()));
    assert!(matches!(Image::of::<Inline>(&last[..20], next, 8, &mut value), Image::Longer(44, _)));
}
