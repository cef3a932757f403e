//! The nine tables: rows as plain data (1.3.1), without the columns that are their keys.
//!
//! Numbers are little-endian and nothing is aligned, so that a row has no padding and is the same
//! bytes on every machine. Money is in cents, a rate in units of 1/10000, a date in microseconds
//! since 1970. Text whose length the specification varies is [`Text`].

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{I16, I64, U16, U32, U64},
};

use super::Text;

/// A postal address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Address {
    pub street_1: Text<20>,
    pub street_2: Text<20>,
    pub city: Text<20>,
    pub state: [u8; 2],
    pub zip: [u8; 9],
}

/// A warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Warehouse {
    pub ytd: I64,
    pub tax: U16,
    pub name: Text<10>,
    pub address: Address,
}

/// A district of a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct District {
    pub ytd: I64,
    pub next_order: U32,
    pub tax: U16,
    pub name: Text<10>,
    pub address: Address,
}

/// The columns of a customer that transactions use. They are adjacent, so that they can be read and
/// written without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Account {
    pub balance: I64,
    pub ytd_payment: I64,
    pub payment_count: U32,
    pub delivery_count: U32,
    pub discount: U16,
    /// `GC`, or `BC` for bad credit.
    pub credit: [u8; 2],
    pub last: Text<16>,
}

/// A customer of a district.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Customer {
    pub account: Account,
    pub credit_limit: I64,
    pub since: U64,
    pub first: Text<16>,
    pub middle: [u8; 2],
    pub address: Address,
    pub phone: [u8; 16],
    pub data: Text<500>,
}

/// The value of the index of customers by name: the names, so that a lookup reads no customer rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct CustomerNames {
    pub last: Text<16>,
    pub first: Text<16>,
}

/// A payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct History {
    pub customer: U32,
    pub customer_district: u8,
    pub customer_warehouse: U16,
    pub district: u8,
    pub warehouse: U16,
    pub date: U64,
    pub amount: I64,
    pub data: Text<24>,
}

/// An order that is not delivered yet. Its key contains everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NewOrder;

/// An order of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Order {
    pub customer: U32,
    pub entry_date: U64,
    /// The carrier, 1 to 10; 0 if there is none yet.
    pub carrier: u8,
    pub line_count: u8,
    /// Whether its own warehouse supplies all lines, 1 or 0.
    pub all_local: u8,
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct OrderLine {
    pub item: U32,
    pub supply_warehouse: U16,
    /// When it was delivered; 0 if it is not.
    pub delivery_date: U64,
    pub quantity: u8,
    pub amount: I64,
    pub district_info: [u8; 24],
}

/// An item that can be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Item {
    pub image: U32,
    pub price: I64,
    pub name: Text<24>,
    pub data: Text<50>,
}

/// The columns of a stock that every order of its item uses: see [`Account`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Supply {
    pub quantity: I16,
    pub ytd: U32,
    pub order_count: U32,
    pub remote_count: U32,
    pub data: Text<50>,
}

/// The stock of an item in a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Stock {
    pub supply: Supply,
    /// S_DIST_01 to S_DIST_10.
    pub districts: [[u8; 24]; 10],
}

// The size of each record's value. A changed size makes existing tables unreadable.
const _: () = {
    assert!(size_of::<Address>() == 77);
    assert!(size_of::<Warehouse>() == 99);
    assert!(size_of::<District>() == 103);
    assert!(size_of::<Customer>() == 677);
    assert!(size_of::<CustomerNames>() == 36);
    assert!(size_of::<History>() == 52);
    assert!(size_of::<NewOrder>() == 0);
    assert!(size_of::<Order>() == 15);
    assert!(size_of::<OrderLine>() == 47);
    assert!(size_of::<Item>() == 90);
    assert!(size_of::<Stock>() == 306);
};
