//! The three tables: rows as plain data, without the columns that are their keys. A row is the same
//! bytes on every machine.

use drtm_txn::Key;
use zerocopy::{
    FromBytes, Immutable, IntoBytes,
    little_endian::{I64, U64},
};

/// A customer's number, from zero: the key of [`Savings`] and [`Checking`].
pub type CustomerKey = u64;

/// A customer's name: the key of [`Account`].
pub type AccountName = [u8; 64];

/// The row of a customer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Account {
    /// The customer's number.
    pub customer: U64,
}

/// A savings account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Savings {
    /// In cents. Never negative.
    pub balance: I64,
}

/// A checking account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Checking {
    /// In cents. Negative if it is overdrawn.
    pub balance: I64,
}

// The size of each record's value. A changed size makes existing tables unreadable.
const _: () = {
    assert!(size_of::<Account>() == 8 && size_of::<Savings>() == 8 && size_of::<Checking>() == 8);
    assert!(CustomerKey::FITS && !AccountName::FITS);
};

/// Returns a customer's name: its number in 64 digits, as in H-Store.
///
/// # Example
///
/// ```
/// use drtm_workloads::smallbank::account_name;
///
/// let name = account_name(1_207);
/// assert!(name.starts_with(b"0000") && name.ends_with(b"01207"));
/// assert!(account_name(9) < account_name(10));
/// ```
pub fn account_name(customer: CustomerKey) -> AccountName {
    let mut name = [b'0'; 64];
    let mut rest = customer;
    for digit in name.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    name
}
