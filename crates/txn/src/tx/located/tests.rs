//! Prefetches of rows, in tables that exist and in some that are only a number.

use drtm_htm::NoHtm;
use drtm_kv::{ForHolder, Handle, HashConfig, HashTable, KvTable, Store};

use super::*;

const WHOLE: PrefetchMask = PrefetchMask::of(&[]);

/// Creates a table with the keys below this one.
fn table(keys: u64, config: HashConfig) -> HashTable<NoHtm> {
    let store = Store::in_memory(NoHtm, 16 << 20).expect("memory");
    let (table, mut worker) = (store.hash_table(config).expect("room"), store.worker().expect("a worker"));
    (0..keys).for_each(|key| assert!(table.insert(&mut worker, key, b"").expect("room").is_some()));
    table
}

struct World {
    located: Located,
    table: HashTable<NoHtm>,
}

impl World {
    fn new() -> Self {
        Self { located: Located::default(), table: table(40, HashConfig::default()) }
    }

    /// Prefetches these keys, as those of a table with this number.
    fn ask(&mut self, number: u16, keys: &[u64]) -> bool {
        let Self { located, table } = self;
        let rows = table.prefetch(keys.iter().copied());
        located.note(number, rows, &WHOLE, |located| Self::advance(located, table, false))
    }

    fn advance(located: &mut Located, table: &HashTable<NoHtm>, is_needed: bool) {
        located.advance(is_needed, |_, asked| asked.locate(|key, bucket, lines| table.locate(key, bucket, lines)));
    }

    fn step(&mut self) {
        if self.located.step() {
            Self::advance(&mut self.located, &self.table, false);
        }
    }

    /// Returns the records of all prefetched rows.
    fn settle(&mut self) {
        (0..2 * STEPS_UNTIL_DUE).for_each(|_| self.step());
    }

    fn record(&mut self, number: u16, key: u64) -> Option<Handle> {
        match self.located.find(number, key) {
            Whereabouts::Record(at) => Some(at),
            Whereabouts::Bucket(_) | Whereabouts::Unknown => None,
        }
    }

    /// Checks that the key's record is located, and is its own.
    fn is_found(&mut self, number: u16, key: u64) -> bool {
        let holder = drtm_kv::Holder::new(0, 0, 0, 0);
        let found = self.record(number, key);
        found.is_some_and(|at| self.table.read_at(at, key, ForHolder(holder), &mut Vec::new()).is_some())
    }
}

#[test]
fn rows_are_found_in_their_turn_and_out_of_it() {
    let mut world = World::new();
    assert_eq!(world.located.find(1, 10), Whereabouts::Unknown);
    // The rows are in two pieces, followed by another table's rows.
    assert!(world.ask(1, &[10, 11]) && world.ask(1, &[12]) && world.ask(2, &[10, 13]));
    world.settle();
    for key in [10, 10, 11, 12, 12, 10, 12, 11] {
        assert!(world.is_found(1, key), "{key}");
    }
    assert_eq!([10, 13, 11].map(|key| world.is_found(2, key)), [true, true, false]);
    assert!(!world.is_found(3, 10));

    // The last rows of tables that share a stream's place are located, and so are those of a table
    // that is prefetched again.
    assert!(world.ask(1, &[20]));
    world.settle();
    assert_eq!([20, 10].map(|key| world.is_found(1, key)), [true, false]);
    assert!(world.ask(1 + STREAMS as u16, &[20]));
    world.settle();
    assert!(!world.is_found(1, 20) && world.is_found(1 + STREAMS as u16, 20));

    world.located.clear();
    assert!(!world.is_found(2, 10));
    assert!(world.ask(2, &[14]));
    world.settle();
    assert_eq!([14, 10].map(|key| world.is_found(2, key)), [true, false], "nothing from before");
}

#[test]
fn several_rows_are_come_to_at_once_until_it_is_time_for_others() {
    let mut world = World::new();
    assert!(world.ask(1, &[10, 11, 12]) && world.located.ahead(2).is_empty());
    let words = |rows: &[Entry]| rows.iter().map(|entry| entry.word).collect::<Vec<_>>();
    assert!(world.located.ahead(1).len() <= STEPS_UNTIL_DUE as usize, "before that their records are to be asked for");
    world.settle();
    assert_eq!(words(world.located.ahead(1)), [10, 11, 12]);
    assert!(world.located.has(1, 0, 10) && world.located.has(1, 2, 12));
    assert!(!world.located.has(1, 1, 12) && !world.located.has(1, 3, 13) && !world.located.has(2, 0, 10));

    let before = world.located.steps;
    world.located.pass(1, 2);
    assert_eq!((words(world.located.ahead(1)), world.located.steps), (vec![12], before + 2));
    assert!(matches!(world.located.next(1, 12), Some(Whereabouts::Record(_))));
    assert_eq!([world.located.next(1, 11), world.located.next(2, 12)], [None; 2]);
    assert!(world.ask(2, &[20, 21, 22, 23]));
    // It returns as many rows as there are steps until the other rows are due.
    assert!(world.ask(1, &[13, 14, 15]) && world.located.ahead(1).len() < 4);
    world.located.clear();
    assert!(world.located.ahead(1).is_empty() && !world.located.has(1, 0, 12));
}

#[test]
fn records_are_asked_for_a_while_after_buckets() {
    let mut world = World::new();
    assert!(world.ask(1, &[1, 2]));
    for _ in 1..STEPS_UNTIL_DUE {
        world.step();
        assert!(matches!(world.located.find(1, 1), Whereabouts::Bucket(_)));
    }
    // Later rows wait on their own.
    assert!(world.ask(2, &[3]));
    assert!(world.is_found(1, 1) && world.is_found(1, 2) && !world.is_found(2, 3));
    world.settle();
    assert!(world.is_found(2, 3));

    // Reading one waiting row prefetches the records of all that are waiting.
    assert!(world.ask(3, &[4, 99]) && world.ask(3, &[6]) && world.ask(4, &[5]));
    World::advance(&mut world.located, &world.table, true);
    assert!(world.is_found(3, 4) && world.is_found(3, 6) && world.is_found(4, 5));
    assert_eq!(world.located.find(3, 99), Whereabouts::Unknown, "there is no such row");

    // Rows that a transaction does not read have no effect on the next one.
    assert!(world.ask(1, &[7]));
    world.located.clear();
    world.settle();
    assert_eq!(world.located.find(1, 7), Whereabouts::Unknown);
}

#[test]
fn rows_further_on_in_a_chain_are_found_bucket_by_bucket() {
    let config = HashConfig::for_keys(64).with_occupancy(4.0).fixed();
    let mut world = World { table: table(512, config), ..World::new() };
    let keys: Vec<_> = (0..512).collect();
    assert!(world.ask(1, &keys));
    let known = |world: &mut World| keys.iter().filter(|key| world.is_found(1, **key)).count();
    let mut before = 0;
    // Four times as many keys as fit into the first buckets.
    for length in 1..=3 {
        (0..STEPS_UNTIL_DUE).for_each(|_| world.step());
        let now = known(&mut world);
        assert!(now > before, "buckets {length}: {now} after {before}");
        before = now;
    }
    (0..8).for_each(|_| world.settle());
    // Exceptions are rows whose place is in several words: an overflow bucket cannot tell that
    // they belong together.
    let now = known(&mut world);
    assert!((400..=512).contains(&now), "{now}");
}

#[test]
fn no_more_is_remembered_than_there_is_room_for() {
    let mut world = World::new();
    for _ in 0..MOST / 16 {
        assert!(world.ask(1, &[7; 16]));
    }
    assert!(!world.ask(1, &[8]));
    assert_eq!(world.located.entries.len(), MOST);
    world.settle();
    assert!(world.is_found(1, 7));
    // A row far out of order is looked up in full.
    assert!(world.ask(2, &[]) && !world.is_found(1, 8));
}
