//! The accounts that a transaction touches, for protocols that lock them before it runs.

use super::{CustomerKey, Transaction};

/// The accounts of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    pub(super) savings: Option<CustomerKey>,
    pub(super) checking: [Option<CustomerKey>; 2],
    /// Whether the savings account is written. Otherwise it is only read.
    pub(super) writes_savings: bool,
    /// The same of all checking accounts.
    pub(super) writes_checking: bool,
}

impl Transaction {
    pub(super) fn touched(&self) -> Touched {
        let (savings, checking) = match *self {
            Self::Balance { customer } | Self::WriteCheck { customer, .. } => (Some(customer), [Some(customer), None]),
            Self::DepositChecking { customer, .. } => (None, [Some(customer), None]),
            Self::TransactSavings { customer, .. } => (Some(customer), [None, None]),
            Self::Amalgamate { from, to } => (Some(from), [Some(from), Some(to)]),
            Self::SendPayment { from, to, .. } => (None, [Some(from), Some(to)]),
        };
        Touched {
            savings,
            checking,
            writes_savings: matches!(self, Self::TransactSavings { .. } | Self::Amalgamate { .. }),
            writes_checking: !matches!(self, Self::Balance { .. } | Self::TransactSavings { .. }),
        }
    }
}
