//! The four tables that customer-position reads: rows as plain data, without the columns that are
//! their keys. Prices are in cents.

use drtm_txn::Key;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{I64, U32, U64},
};

use crate::tpcc::Text;

/// A customer's number, from zero.
pub type CustomerKey = u32;
/// Customer, and which of its accounts, from zero.
pub type AccountKey = (u32, u8);
/// Customer, account, and which of its holdings, from zero.
pub type HoldingKey = (u32, u8, u8);
/// A security's number, from zero.
pub type SecurityKey = u32;

const _: () = assert!(CustomerKey::FITS && AccountKey::FITS && HoldingKey::FITS && SecurityKey::FITS);

/// A customer, as far as the transaction shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Customer {
    pub tax_id: [u8; 16],
    pub last: Text<25>,
    pub first: Text<20>,
    /// 1 to 3.
    pub tier: u8,
    /// How many accounts it has.
    pub accounts: u8,
    pub phone: [u8; 16],
    pub email: Text<50>,
}

/// An account of a customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Account {
    pub balance: I64,
    /// How many securities it has some of.
    pub holdings: u8,
    pub name: Text<50>,
}

/// How much an account has of a security.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Holding {
    pub security: U32,
    pub quantity: U32,
}

/// What was paid for a security last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct LastTrade {
    pub price: I64,
    pub open_price: I64,
    /// How often its price has changed.
    pub volume: U64,
}
