//! Inputs of the transactions.

use drtm_drive::{Random, cluster::Nearby, mix::Mix};

use super::{Bank, BankError, CustomerKey};

/// The six transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the workload's names")]
pub enum Kind {
    Balance,
    DepositChecking,
    TransactSavings,
    Amalgamate,
    WriteCheck,
    SendPayment,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Balance,
        Self::DepositChecking,
        Self::TransactSavings,
        Self::Amalgamate,
        Self::WriteCheck,
        Self::SendPayment,
    ];
}

/// 25 % SEND-PAYMENT and 15 % of each of the others, as in H-Store, FaSST and DrTM.
pub const STANDARD_MIX: Mix<Kind> = Mix::constant([
    (Kind::Balance, 15),
    (Kind::DepositChecking, 15),
    (Kind::TransactSavings, 15),
    (Kind::Amalgamate, 15),
    (Kind::WriteCheck, 15),
    (Kind::SendPayment, 25),
]);

/// A transaction's input. Amounts are in cents. Payer and payee always differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "what the rules speak of")]
pub enum Transaction {
    /// Reads both balances.
    Balance { customer: CustomerKey },
    /// Puts an amount into the checking account.
    DepositChecking { customer: CustomerKey, amount: i64 },
    /// Puts an amount into the savings account, or takes it if it is negative.
    TransactSavings { customer: CustomerKey, amount: i64 },
    /// Moves all money of one customer to another's checking account.
    Amalgamate { from: CustomerKey, to: CustomerKey },
    /// Takes an amount from the checking account, with a penalty if both accounts together do not
    /// cover it.
    WriteCheck { customer: CustomerKey, amount: i64 },
    /// Moves an amount from one checking account to another.
    SendPayment { from: CustomerKey, to: CustomerKey, amount: i64 },
}

impl Transaction {
    /// Returns the kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Balance { .. } => Kind::Balance,
            Self::DepositChecking { .. } => Kind::DepositChecking,
            Self::TransactSavings { .. } => Kind::TransactSavings,
            Self::Amalgamate { .. } => Kind::Amalgamate,
            Self::WriteCheck { .. } => Kind::WriteCheck,
            Self::SendPayment { .. } => Kind::SendPayment,
        }
    }
}

/// The customers that transactions prefer. The hot ones have the lowest numbers.
///
/// All customers of a transaction are hot, or none is.
///
/// # Example
///
/// ```
/// use drtm_workloads::smallbank::HotSet;
///
/// assert_eq!(HotSet::DRTM_H, HotSet::Share { customers: 4, transactions: 90 });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HotSet {
    /// No customer is hot: all are equally likely.
    None,
    /// A share of the customers has a share of the transactions; the other customers have the rest.
    Share {
        /// The share of customers, in percent.
        customers: u8,
        /// The share of transactions, in percent; 100 and above is all.
        transactions: u8,
    },
    /// A fixed number of customers has a share of the transactions.
    Fixed {
        /// The number of customers.
        customers: u64,
        /// The share of transactions, in percent; 100 and above is all.
        transactions: u8,
    },
}

impl HotSet {
    /// 4 % of the customers have 90 % of the transactions. DrTM+H uses this; FaSST draws the other
    /// transactions' customers from all.
    pub const DRTM_H: Self = Self::Share { customers: 4, transactions: 90 };
    /// 1,000 customers (of 18,000) have 90 % of the transactions, as Alomari measures.
    pub const ALOMARI: Self = Self::Fixed { customers: 1_000, transactions: 90 };

    fn hot_customers(self, customers: u64) -> u64 {
        match self {
            Self::None => 0,
            Self::Share { customers: share, .. } => customers * u64::from(share) / 100,
            Self::Fixed { customers, .. } => customers,
        }
    }

    fn chance(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Share { transactions, .. } | Self::Fixed { transactions, .. } => transactions,
        }
    }
}

/// The amounts of transactions, in cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "one for each transaction that has an amount")]
pub struct Amounts {
    pub deposit_checking: i64,
    /// Negative to withdraw.
    pub transact_savings: i64,
    pub write_check: i64,
    pub send_payment: i64,
}

impl Amounts {
    /// H-Store's constant amounts: 1.30, 20.20, 5.00 and 5.00.
    pub const H_STORE: Self =
        Self { deposit_checking: 130, transact_savings: 2_020, write_check: 500, send_payment: 500 };
}

/// The inputs of one worker, determined by a seed.
///
/// # Example
///
/// ```
/// use drtm_workloads::smallbank::{Amounts, Bank, HotSet, Inputs, Kind, STANDARD_MIX, Transaction};
///
/// let take = Amounts { transact_savings: -2_020, ..Amounts::H_STORE };
/// let mut inputs = Inputs::new(Bank::new(100, 42)?, STANDARD_MIX, HotSet::None, 1)?.with_amounts(take);
/// let Transaction::TransactSavings { customer, amount } = inputs.of(Kind::TransactSavings) else { unreachable!() };
/// assert!(customer < 100 && amount == -2_020);
/// # Ok::<(), drtm_workloads::smallbank::BankError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inputs {
    mix: Mix<Kind>,
    amounts: Amounts,
    customers: u64,
    /// The number of hot customers, which are the first.
    hot: u64,
    /// The chance of a transaction on hot customers, in percent.
    chance: u8,
    random: Random,
    nearby: Option<Nearby>,
}

impl Inputs {
    /// Creates inputs over a bank. Each worker needs a seed of its own.
    ///
    /// # Errors
    ///
    /// Returns an error if fewer than two customers would be hot, or fewer than two not.
    pub fn new(bank: Bank, mix: Mix<Kind>, hot_set: HotSet, seed: u64) -> Result<Self, BankError> {
        let customers = bank.customers();
        let hot = hot_set.hot_customers(customers);
        if hot_set != HotSet::None && (hot < 2 || customers.saturating_sub(hot) < 2) {
            return Err(BankError::HotSet { hot, customers });
        }
        let random = Random::seeded(seed);
        Ok(Self { mix, amounts: Amounts::H_STORE, customers, hot, chance: hot_set.chance(), random, nearby: None })
    }

    /// Returns the number of hot customers, which have the lowest numbers.
    pub(super) fn hot_customers(&self) -> u64 {
        self.hot
    }

    /// Chooses customers by whether they are on the client's own node.
    #[must_use]
    pub fn near(self, nearby: Option<Nearby>) -> Self {
        Self { nearby, ..self }
    }

    /// Replaces the amounts.
    #[must_use]
    pub fn with_amounts(self, amounts: Amounts) -> Self {
        Self { amounts, ..self }
    }

    /// Draws the next transaction.
    #[inline]
    pub fn draw(&mut self) -> Transaction {
        let kind = self.mix.draw(&mut self.random);
        self.of(kind)
    }

    /// Draws the next transaction of a kind.
    #[inline]
    pub fn of(&mut self, kind: Kind) -> Transaction {
        let (first, count) =
            if self.random.percent(self.chance) { (0, self.hot) } else { (self.hot, self.customers - self.hot) };
        let drawn = first + self.random.within(0, count - 1);
        let customer = self.near_or(drawn, first, count);
        match kind {
            Kind::Balance => Transaction::Balance { customer },
            Kind::DepositChecking => Transaction::DepositChecking { customer, amount: self.amounts.deposit_checking },
            Kind::TransactSavings => Transaction::TransactSavings { customer, amount: self.amounts.transact_savings },
            Kind::WriteCheck => Transaction::WriteCheck { customer, amount: self.amounts.write_check },
            Kind::Amalgamate => Transaction::Amalgamate { from: customer, to: self.other(customer, first, count) },
            Kind::SendPayment => {
                let to = self.other(customer, first, count);
                Transaction::SendPayment { from: customer, to, amount: self.amounts.send_payment }
            }
        }
    }

    /// Draws any of `count` customers from `first` on, except this one.
    fn other(&mut self, customer: CustomerKey, first: CustomerKey, count: u64) -> CustomerKey {
        loop {
            let other = first + self.random.within(0, count - 2);
            let other = if other < customer { other } else { other + 1 };
            let other = self.near_or(other, first, count);
            if other != customer {
                return other;
            }
        }
    }

    /// Returns a customer, or one near it, of `count` from `first` on.
    fn near_or(&mut self, customer: CustomerKey, first: CustomerKey, count: u64) -> CustomerKey {
        match &mut self.nearby {
            Some(nearby) => nearby.of(customer, first..=first + count - 1),
            None => customer,
        }
    }
}
