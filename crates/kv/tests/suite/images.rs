//! A record's memory may hold a mixture of its past contents, or any words. A peer reads one of
//! those records, or rejects the words.

use drtm_htm::{Engine, NoHtm};
use drtm_kv::{
    Bytes, HashConfig, HashPeer, Head, Inline, Keys, KvTable, Location, Look, RecordPeer, RemoteError, Version,
};
use drtm_rdma::{Endpoint, LocalConfig, Phase};
use proptest::prelude::*;

use crate::{
    cluster::{Cluster, PortOf},
    peers::{PEERS, alone},
    support::MIB,
};

/// Words of the size class of all these records.
const WORDS: usize = 48;

/// The words of a record's header.
const HEAD: usize = 1;
const STATE: usize = 2;
const VERSION: usize = 3;
const LENGTHS: usize = 4;

type Image = [u64; WORDS];

/// The past contents of a record's memory, the values of that time, and a peer that reads it.
struct Memory<K: Keys> {
    cluster: Cluster,
    endpoint: Endpoint<PortOf>,
    peer: RecordPeer<K>,
    location: Location,
    images: Vec<Image>,
    values: Vec<(Version, Vec<u8>)>,
}

impl<K: Keys> Memory<K> {
    /// Creates a record of `key` with several values, one of them in the middle of a write, and
    /// then another key's record in the same memory.
    fn of(key: K::Key<'_>, other: K::Key<'_>, lengths: &[usize]) -> Self {
        let cluster = Cluster::with_capacity(LocalConfig::perfect(), 16 * MIB);
        let table = cluster.store.hash_table_of::<K>(HashConfig::default().for_peers()).expect("a table");
        let (endpoint, at) = (cluster.endpoint(PEERS[0]), cluster.at(table.location()));
        let verbs = endpoint.during(Phase::Execute);
        let lookup = alone(&endpoint, HashPeer::<K>::open(verbs, at)).expect("the table");
        let peer = alone(&endpoint, RecordPeer::<K>::open(verbs, at)).expect("a table for peers");
        let find = |key: K::Key<'_>| alone(&endpoint, lookup.find(verbs, key)).expect("sound").expect("it is there");

        let mut worker = cluster.store.worker().expect("a worker");
        let (mut images, mut values, mut location) = (Vec::new(), Vec::new(), None);
        for (turn, length) in lengths.iter().enumerate() {
            let value: Vec<u8> = (0..*length).map(|at| (turn * 50 + at) as u8).collect();
            values.push((table.put(&mut worker, key, &value).expect("room"), value));
            let at = find(key);
            assert_eq!(*location.get_or_insert(at), at, "it has moved: these lengths are of different classes");
            let image = held(&cluster, at);
            let mut writing = image;
            writing[VERSION] |= 1;
            images.extend([image, writing]);
        }
        let location = location.expect("one length at least");
        table.remove(&mut worker, key).expect("sound").expect("it is there");
        images.push(held(&cluster, location));
        table.insert(&mut worker, other, &vec![9; lengths[0]]).expect("room").expect("new");
        assert_eq!(find(other).record, location.record, "the memory was to be used again");
        images.push(held(&cluster, location));
        Self { cluster, endpoint, peer, location, images, values }
    }

    /// Returns what a peer reads from these words, expecting a record of this incarnation.
    fn read(&self, words: &[u64], incarnation: u16, key: K::Key<'_>) -> (Result<Look<Version>, RemoteError>, Vec<u8>) {
        let memory = self.cluster.store.region().words(self.location.record.offset, words.len()).expect("allocated");
        memory.iter().zip(words).for_each(|(word, value)| NoHtm.store(word, *value));
        let (mut location, mut value) = (self.location, Vec::new());
        location.incarnation = incarnation;
        let read = self.peer.read(self.endpoint.during(Phase::Execute), location, key, &mut value);
        (alone(&self.endpoint, read).map(|read| read.map(|read| read.version)), value)
    }

    fn is_right(&self, choices: &[usize], key: K::Key<'_>) -> Result<(), TestCaseError> {
        let image = |(word, choice): (usize, &usize)| self.images[choice % self.images.len()][word];
        let mixed: Vec<u64> = choices.iter().enumerate().map(image).collect();
        if let (Ok(Look::Found(version)), value) = self.read(&mixed, self.location.incarnation, key) {
            prop_assert!(self.values.contains(&(version, value)), "{version:?}");
        }
        Ok(())
    }
}

/// Returns the present contents of a place.
fn held(cluster: &Cluster, at: Location) -> Image {
    let words = cluster.store.region().words(at.record.offset, WORDS).expect("allocated");
    std::array::from_fn(|word| NoHtm.load(&words[word]))
}

fn of_words() -> Memory<Inline> {
    Memory::of(7, 8, &[300, 299, 297, 300])
}

fn of_bytes() -> Memory<Bytes> {
    Memory::of(&b"somebody's name"[..], &b"another's name."[..], &[280, 275, 280])
}

/// Draws the image of each word: any; or all but a few from one, which is more dangerous.
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

thread_local! {
    // Creating them takes longer than reading them.
    static INLINE: Memory<Inline> = of_words();
    static BYTES: Memory<Bytes> = of_bytes();
}

proptest! {
    #[test]
    fn no_mixture_of_images_is_believed(choices in choices()) {
        INLINE.with(|memory| memory.is_right(&choices, 7))?;
        BYTES.with(|memory| memory.is_right(&choices, b"somebody's name"))?;
    }

    #[test]
    fn any_words_can_be_looked_at(
        mut words in prop::collection::vec(any::<u64>(), 5..WORDS),
        incarnation in 0..1_u16 << 14,
        plausible: bool,
    ) {
        if plausible {
            // A plausible record, except for its checksum.
            words[VERSION] &= !3;
            words[HEAD] = u64::from(incarnation) << 50 | 255 << 42 | 1 << 40;
            assert_eq!(Head::new(incarnation, None).checked().incarnation(), (words[HEAD] >> 50) as u16);
            words[LENGTHS] &= 0xFFFF_0001_FFFF;
        }
        let (read, _) = INLINE.with(|memory| memory.read(&words, incarnation, 7));
        prop_assert!(!matches!(read, Ok(Look::Found(_) | Look::Other)), "{read:?}");
        let (read, _) = BYTES.with(|memory| memory.read(&words, incarnation, b"seven"));
        prop_assert!(!matches!(read, Ok(Look::Found(_) | Look::Other)), "{read:?}");
    }
}

#[test]
fn each_image_by_itself_is_what_it_is() {
    let memory = of_words();
    let incarnation = memory.location.incarnation;
    for (pair, (version, value)) in memory.images.as_chunks::<2>().0.iter().zip(&memory.values) {
        let whole = (Ok(Look::Found(*version)), value.clone());
        assert_eq!(memory.read(&pair[0], incarnation, 7), whole);
        // The lock does not matter.
        let mut locked = pair[0];
        locked[STATE] = 0xABC;
        assert_eq!(memory.read(&locked, incarnation, 7), whole);
        assert_eq!(memory.read(&pair[0], incarnation, 8).0, Ok(Look::Stale));
        assert_eq!(memory.read(&pair[1], incarnation, 7).0, Ok(Look::Busy));
    }
    let [.., removed, another] = &memory.images[..] else { panic!("two more") };
    for gone in [removed, another] {
        assert_eq!(memory.read(gone, incarnation, 7).0, Ok(Look::Stale));
    }
    assert!(matches!(memory.read(another, incarnation + 1, 8).0, Ok(Look::Found(_))));
    assert_eq!(memory.read(another, incarnation + 1, 7).0, Ok(Look::Stale));
}
