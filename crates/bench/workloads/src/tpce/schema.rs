//! The four tables that customer-position reads: rows as plain data, without the columns that are
//! their keys. Prices are in cents.

use drtm_drive::Text;
use drtm_txn::Key;
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{I64, U32, U64},
};

/// A customer's number, from zero.
pub type CustomerKey = u32;
/// Customer, and the index of its account, from zero.
pub type AccountKey = (u32, u8);
/// Customer, account, and the index of the holding, from zero.
pub type HoldingKey = (u32, u8, u8);
/// A security's number, from zero.
pub type SecurityKey = u32;

const _: () = assert!(CustomerKey::FITS && AccountKey::FITS && HoldingKey::FITS && SecurityKey::FITS);

/// The columns of a customer that the transaction shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Customer {
    pub tax_id: [u8; 16],
    pub last: Text<25>,
    pub first: Text<20>,
    /// 1 to 3.
    pub tier: u8,
    /// The number of its accounts.
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
    /// The number of its securities.
    pub holdings: u8,
    pub name: Text<50>,
}

/// The quantity of a security in an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct Holding {
    pub security: U32,
    pub quantity: U32,
}

/// The price of a security's last trade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the specification's columns")]
pub struct LastTrade {
    pub price: I64,
    pub open_price: I64,
    /// The number of price changes.
    pub volume: U64,
}
