//! Tests that every row and every key survives encoding, and that encoded keys keep their order.

use std::{collections::BTreeMap, fmt::Debug, num::NonZeroU64};

use drtm_txn::{Codec, Key, Pod};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::*;

fn survives<K: Key + Ord + Debug, R: PartialEq + Debug + FromBytes + IntoBytes + Immutable + 'static>(
    table: &BTreeMap<K, R>,
) {
    assert!(!table.is_empty());
    let mut bytes = Vec::new();
    let mut last_key = Vec::new();
    for (key, row) in table {
        bytes.clear();
        Pod::encode(row, &mut bytes).expect("plain data can be written");
        assert_eq!(bytes.len(), size_of::<R>());
        assert_eq!(&Pod::<R>::decode(&bytes).expect("and read"), row);
        let mut written = Vec::new();
        key.write(&mut written, true);
        assert_eq!(K::from_bytes(&written).as_ref(), Some(key));
        assert!(last_key < written, "{key:?} is not in order");
        last_key = written;
    }
    if K::FITS {
        assert!(table.keys().is_sorted_by(|one, next| one.word() < next.word()));
        assert!(table.keys().all(|key| K::from_word(key.word()).as_ref() == Some(key)));
    }
}

#[test]
fn rows_and_keys_come_back() {
    let scale = Scale::new(2).and_then(|scale| scale.with_customers(50)?.with_items(300)).expect("small");
    let rows = Population::of(&Loader::new(scale, 3, NonZeroU64::MIN));
    survives(&rows.warehouses);
    survives(&rows.districts);
    survives(&rows.customers);
    survives(&rows.histories);
    survives(&rows.new_orders);
    survives(&rows.orders);
    survives(&rows.order_lines);
    survives(&rows.items);
    survives(&rows.stocks);
    let by_name = rows.customers.iter().map(|(key, row)| {
        let by_name = CustomerByName::new(*key, &row.account.last).expect("in range");
        (by_name, CustomerNames { last: row.account.last, first: row.first })
    });
    survives::<CustomerByName, CustomerNames>(&by_name.collect());
    let by_customer = rows.orders.iter().map(|(key, row)| {
        let customer = (key.0, key.1, row.customer.get());
        (OrderByCustomer::new(customer, key.2).expect("in range"), key.2.into())
    });
    survives::<OrderByCustomer, zerocopy::little_endian::U32>(&by_customer.collect());
}
