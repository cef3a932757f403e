//! What a transaction does, as a function: the accounts that it reads, and what they have
//! afterwards. For stores that want to know the accounts before a transaction runs.

use super::{
    CustomerKey, Transaction,
    rules::{self, Refusal},
};

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

/// What a transaction makes of its accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    /// What the accounts have afterwards, those that are not its own left out.
    pub(super) savings: i64,
    pub(super) checking: [i64; 2],
    /// What it has put into the bank: negative if it takes.
    pub(super) put: i64,
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

    /// Applies the transaction's rule to the balances of the accounts that it
    /// [touches](Self::touched). Those of accounts that it does not touch count for nothing.
    pub(super) fn outcome(&self, savings: i64, [first, second]: [i64; 2]) -> Result<Outcome, Refusal> {
        let unchanged = Outcome { savings, checking: [first, second], put: 0 };
        Ok(match *self {
            Self::Balance { .. } => {
                std::hint::black_box(rules::balance(savings, first));
                unchanged
            }
            Self::DepositChecking { amount, .. } => {
                Outcome { checking: [rules::deposit_checking(first, amount)?, second], put: amount, ..unchanged }
            }
            Self::TransactSavings { amount, .. } => {
                Outcome { savings: rules::transact_savings(savings, amount)?, put: amount, ..unchanged }
            }
            Self::Amalgamate { .. } => {
                Outcome { savings: 0, checking: [0, rules::amalgamate(savings, first, second)?], put: 0 }
            }
            Self::WriteCheck { amount, .. } => {
                let check = rules::write_check(savings, first, amount)?;
                Outcome { checking: [check.checking, second], put: -check.taken, ..unchanged }
            }
            Self::SendPayment { amount, .. } => {
                let (left, right) = rules::send_payment(first, second, amount)?;
                Outcome { checking: [left, right], ..unchanged }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_that_are_only_read_stay_as_they_are() {
        let all = [
            Transaction::Balance { customer: 1 },
            Transaction::DepositChecking { customer: 1, amount: 5 },
            Transaction::TransactSavings { customer: 1, amount: -5 },
            Transaction::Amalgamate { from: 1, to: 2 },
            Transaction::WriteCheck { customer: 1, amount: 7 },
            Transaction::SendPayment { from: 1, to: 2, amount: 3 },
        ];
        for transaction in all {
            let (touched, made) = (transaction.touched(), transaction.outcome(100, [20, 3]).expect("allowed"));
            assert_eq!(made.savings != 100, touched.writes_savings, "{transaction:?}");
            assert_eq!(made.checking != [20, 3], touched.writes_checking, "{transaction:?}");
            assert!(!touched.writes_savings || touched.savings.is_some());
            // What is in the bank afterwards is what was there, and what was put into it.
            assert_eq!(made.savings + made.checking[0] + made.checking[1], 123 + made.put, "{transaction:?}");
        }
    }

    #[test]
    fn what_a_rule_refuses_is_refused() {
        let transaction = Transaction::SendPayment { from: 1, to: 2, amount: 3 };
        assert_eq!(transaction.outcome(0, [2, 9]), Err(Refusal::Overdrawn));
    }
}
