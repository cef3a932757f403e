//! DrTM's hotspot transactions: each writes records as NEW-ORDER writes stock, mostly of its
//! client's own warehouse, and reads one of few hot records.

use drtm_drive::{Random, cluster::Place};
use serde::{Deserialize, Serialize};

use super::{MOST, ShapeError};

/// The shape of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hotspot {
    /// Records of a transaction, one of which is hot. The others are written.
    pub accesses: u8,
    /// Hot records: those with the lowest numbers, so that all nodes have as many.
    pub hot: u64,
    /// The chance in percent that a record is of another warehouse.
    pub remote: u8,
}

/// The transactions of one client.
#[derive(Debug)]
pub(super) struct Hotspots {
    shape: Hotspot,
    place: Place,
    /// The client's warehouse, and how many there are.
    home: u64,
    warehouses: u64,
    /// Records of a warehouse.
    records: u64,
    random: Random,
    drawn: Vec<(u64, Option<u8>)>,
}

impl Hotspot {
    /// Returns the transactions of a client of all nodes, each of which has a warehouse.
    pub(super) fn client(self, records: u64, place: Place, number: usize, seed: u64) -> Result<Hotspots, ShapeError> {
        let Self { accesses, hot, .. } = self;
        if !(1..=MOST).contains(&accesses) {
            return Err(ShapeError::Accesses(accesses));
        }
        let warehouses = place.all_clients() as u64;
        let of_warehouse = records.saturating_sub(self.cold(place, 0)) / warehouses;
        if hot == 0 || of_warehouse < 2 * u64::from(accesses) {
            return Err(ShapeError::Records { records, accesses });
        }
        let random = Random::seeded(seed);
        Ok(Hotspots {
            shape: self,
            place,
            home: number as u64,
            warehouses,
            records: of_warehouse,
            random,
            drawn: vec![],
        })
    }

    /// Returns the number of a node's record behind those that are hot.
    fn cold(self, place: Place, index: u64) -> u64 {
        let nodes = u64::from(place.nodes);
        (self.hot.div_ceil(nodes) + index) * nodes
    }
}

impl Hotspots {
    /// Draws the numbers of a transaction's records, and the fields that are written.
    pub(super) fn draw(&mut self) -> &[(u64, Option<u8>)] {
        let hot = self.random.within(0, self.shape.hot - 1);
        self.drawn.clear();
        self.drawn.push((hot, None));
        while self.drawn.len() < usize::from(self.shape.accesses) {
            let number = self.record();
            if self.drawn.iter().all(|(other, _)| *other != number) {
                self.drawn.push((number, Some(0)));
            }
        }
        &self.drawn
    }

    /// Draws a record that is not hot. Clients of a node have consecutive numbers.
    fn record(&mut self) -> u64 {
        let is_remote = self.warehouses > 1 && self.random.percent(self.shape.remote);
        let other = if is_remote { self.random.within(1, self.warehouses - 1) } else { 0 };
        let warehouse = (self.home + other) % self.warehouses;
        let clients = self.place.clients as u64;
        let (node, of_node) = (warehouse / clients, warehouse % clients);
        let index = of_node * self.records + self.random.within(0, self.records - 1);
        self.shape.cold(self.place, index) + node
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Hotspot = Hotspot { accesses: 10, hot: 12, remote: 10 };

    #[test]
    fn one_record_is_hot_and_a_tenth_of_the_others_are_of_another_warehouse() {
        let place = Place { node: 1, nodes: 3, clients: 4 };
        let (records, client) = (3_000, 6);
        let mut client = SHAPE.client(records, place, client, 1).expect("enough records");
        let (mut elsewhere, mut hot) = (0, [0; 12]);
        for _ in 0..1_000 {
            let drawn = client.draw().to_vec();
            assert_eq!(drawn.len(), 10);
            for (place, (number, writes)) in drawn.iter().enumerate() {
                assert!(*number < records && drawn[..place].iter().all(|(other, _)| other != number));
                assert_eq!((*number < 12, writes.is_none()), (place == 0, place == 0));
                elsewhere += u32::from(place > 0 && number % 3 != 1);
            }
            hot[drawn[0].0 as usize] += 1;
        }
        // Eight of the eleven other warehouses are on other nodes.
        assert!((550..760).contains(&elsewhere), "{elsewhere}");
        assert!(hot.iter().all(|times| (40..140).contains(times)), "{hot:?}");
    }

    #[test]
    fn warehouses_have_enough_records() {
        let place = Place { node: 0, nodes: 2, clients: 2 };
        assert_eq!(SHAPE.client(80, place, 0, 1).err(), Some(ShapeError::Records { records: 80, accesses: 10 }));
        assert!(SHAPE.client(92, place, 0, 1).is_ok());
        assert!(Hotspot { accesses: 0, ..SHAPE }.client(92, place, 0, 1).is_err());
    }
}
