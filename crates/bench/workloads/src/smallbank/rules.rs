//! Computes the new balances of each transaction from the balances read. The client reads and
//! writes the rows.
//!
//! # Example
//!
//! ```
//! use drtm_workloads::smallbank::rules::{self, Refusal};
//!
//! assert_eq!(rules::transact_savings(2_000, -2_020), Err(Refusal::Overdrawn));
//! let check = rules::write_check(100, 50, 500)?;
//! assert_eq!((check.checking, check.taken), (50 - 600, 600), "with a penalty of 1.00");
//! # Ok::<(), Refusal>(())
//! ```

/// The penalty of a check that is not covered: 1.00.
pub const PENALTY: i64 = 100;

/// Why a transaction is rolled back for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A negative amount where none is allowed.
    #[error("a negative amount")]
    Negative,
    /// The balance does not cover the amount.
    #[error("there is not as much to take")]
    Overdrawn,
    /// A balance would overflow.
    #[error("a balance beyond what 64 bits hold")]
    TooMuch,
}

/// The result of WRITE-CHECK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Check {
    /// The new balance of the checking account.
    pub checking: i64,
    /// The money that leaves the bank: the amount, and the penalty if any.
    pub taken: i64,
}

/// BALANCE: returns the sum of both balances.
pub fn balance(savings: i64, checking: i64) -> i128 {
    i128::from(savings) + i128::from(checking)
}

/// DEPOSIT-CHECKING: returns the new balance of the checking account.
///
/// # Errors
///
/// Returns an error if the amount is negative, or the balance overflows.
pub fn deposit_checking(checking: i64, amount: i64) -> Result<i64, Refusal> {
    not_negative(amount)?;
    sum(checking, amount)
}

/// TRANSACT-SAVINGS: returns the new balance of the savings account.
///
/// # Errors
///
/// Returns an error if the balance would be negative, or overflows.
pub fn transact_savings(savings: i64, amount: i64) -> Result<i64, Refusal> {
    let balance = sum(savings, amount)?;
    if balance < 0 { Err(Refusal::Overdrawn) } else { Ok(balance) }
}

/// AMALGAMATE: returns the new balance of the checking account that receives both balances of the
/// other customer, which become zero.
///
/// # Errors
///
/// Returns an error if the balance overflows.
pub fn amalgamate(savings: i64, checking: i64, to: i64) -> Result<i64, Refusal> {
    i64::try_from(balance(savings, checking) + i128::from(to)).map_err(|_| Refusal::TooMuch)
}

/// WRITE-CHECK: returns the new balance and the money taken.
///
/// # Errors
///
/// Returns an error if the amount is negative, or the balance underflows.
pub fn write_check(savings: i64, checking: i64, amount: i64) -> Result<Check, Refusal> {
    not_negative(amount)?;
    let is_covered = balance(savings, checking) >= i128::from(amount);
    let taken = if is_covered { amount } else { sum(amount, PENALTY)? };
    Ok(Check { checking: sum(checking, -taken)?, taken })
}

/// SEND-PAYMENT: returns the new balances of both checking accounts, the payer's first.
///
/// # Errors
///
/// Returns an error if the amount is negative or not covered, or the other balance overflows.
pub fn send_payment(from: i64, to: i64, amount: i64) -> Result<(i64, i64), Refusal> {
    not_negative(amount)?;
    if from < amount {
        return Err(Refusal::Overdrawn);
    }
    Ok((sum(from, -amount)?, sum(to, amount)?))
}

fn not_negative(amount: i64) -> Result<(), Refusal> {
    if amount < 0 { Err(Refusal::Negative) } else { Ok(()) }
}

fn sum(one: i64, two: i64) -> Result<i64, Refusal> {
    one.checked_add(two).ok_or(Refusal::TooMuch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rules_of_each() {
        assert_eq!(balance(3, -5), -2);
        assert_eq!(deposit_checking(-10, 130), Ok(120));
        assert_eq!(deposit_checking(0, -1), Err(Refusal::Negative));
        assert_eq!(transact_savings(5, 2), Ok(7));
        assert_eq!((transact_savings(5, -5), transact_savings(5, -6)), (Ok(0), Err(Refusal::Overdrawn)));
        assert_eq!(amalgamate(5, -7, 10), Ok(8), "a debt moves as well");
        assert_eq!(write_check(400, 100, 500), Ok(Check { checking: -400, taken: 500 }), "just covered");
        assert_eq!(write_check(400, 99, 500), Ok(Check { checking: -501, taken: 600 }));
        assert_eq!(write_check(0, 0, -1), Err(Refusal::Negative));
        assert_eq!(send_payment(500, 1, 500), Ok((0, 501)));
        assert_eq!(
            (send_payment(499, 1, 500), send_payment(9, 9, -1)),
            (Err(Refusal::Overdrawn), Err(Refusal::Negative))
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(deposit_checking(i64::MAX, 1), Err(Refusal::TooMuch));
        assert_eq!(transact_savings(i64::MAX, 1), Err(Refusal::TooMuch));
        assert_eq!(amalgamate(i64::MAX, i64::MAX, 0), Err(Refusal::TooMuch));
        assert_eq!(amalgamate(i64::MAX, i64::MIN, 1), Ok(0), "only the result must fit");
        assert_eq!(write_check(0, i64::MIN, 1), Err(Refusal::TooMuch));
        assert_eq!(write_check(0, 0, i64::MAX), Err(Refusal::TooMuch));
        assert_eq!(send_payment(1, i64::MAX, 1), Err(Refusal::TooMuch));
    }
}
