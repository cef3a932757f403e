//! Where rows are: a table, and a word of warehouse, district, number and line.

use drtm_rdma::NodeId;
use drtm_tpcc::{CustomerKey, WarehouseKey};

use crate::Key;

/// The tables, with two that stand for indexes: a customer's last order, and the oldest undelivered
/// order of a district. Items are at all nodes, and are in no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Table {
    Warehouse,
    District,
    Customer,
    /// By the writer, in place of the district.
    History,
    NewOrder,
    Order,
    OrderLine,
    /// By the item, as its number.
    Stock,
    LastOrder,
    Oldest,
}

impl Table {
    pub(super) fn of(self, warehouse: WarehouseKey, district: u8, number: u32, line: u8) -> Key {
        let word = u64::from(warehouse) << 48 | u64::from(district) << 40 | u64::from(number) << 8 | u64::from(line);
        Key { table: self as u8, word }
    }

    pub(super) fn customer(self, (warehouse, district, number): CustomerKey) -> Key {
        self.of(warehouse, district, number, 0)
    }

    /// Returns whether a key is of this table.
    pub(super) fn has(self, key: Key) -> bool {
        key.table == self as u8
    }
}

/// Returns the warehouse, the district, the number and the line of a key.
pub(super) fn parts(key: Key) -> (WarehouseKey, u8, u32, u8) {
    ((key.word >> 48) as u16, (key.word >> 40) as u8, (key.word >> 8) as u32, key.word as u8)
}

pub(super) fn warehouse_of(key: Key) -> WarehouseKey {
    parts(key).0
}

/// Returns the node of a warehouse.
pub(super) fn of_warehouse(warehouse: WarehouseKey, nodes: u16) -> NodeId {
    NodeId(warehouse.wrapping_sub(1) % nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_all_their_parts() {
        let greatest = (u16::MAX, u8::MAX, u32::MAX, u8::MAX);
        for part in [(1, 2, 3, 4), greatest, (0, 10, 100_000, 15)] {
            let key = Table::OrderLine.of(part.0, part.1, part.2, part.3);
            assert_eq!(parts(key), part);
            assert!(Table::OrderLine.has(key) && !Table::Order.has(key));
        }
        assert_eq!([1, 2, 3, 4].map(|warehouse| of_warehouse(warehouse, 3).0), [0, 1, 2, 0]);
    }
}
