//! The initial population: customers with their accounts and holdings, and securities.

use drtm_drive::{Random, scatter::of_row};
use serde::{Deserialize, Serialize};
use zerocopy::little_endian::{I64, U32, U64};

use super::{Account, AccountKey, Customer, CustomerKey, Holding, HoldingKey, LastTrade, SecurityKey};

/// Securities per thousand customers.
const SECURITIES: u64 = 685;

/// The most securities of an account.
const MOST_HOLDINGS: u8 = 18;

/// A brokerage, determined by the number of its customers and a seed.
///
/// # Example
///
/// ```
/// use drtm_workloads::tpce::Brokerage;
///
/// let brokerage = Brokerage::new(5_000, 42)?;
/// assert_eq!((brokerage.customers(), brokerage.securities()), (5_000, 3_425));
/// # Ok::<(), drtm_workloads::tpce::BrokerageError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brokerage {
    customers: u32,
    seed: u64,
}

/// An invalid brokerage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerageError {
    /// Too few customers.
    #[error("{0} customers: ask for 30 at least, so that an account can hold 18 different securities")]
    Customers(u32),
}

impl From<BrokerageError> for drtm_drive::Error {
    fn from(error: BrokerageError) -> Self {
        Self::size(error)
    }
}

impl Brokerage {
    /// Creates a brokerage.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too few customers.
    pub fn new(customers: u32, seed: u64) -> Result<Self, BrokerageError> {
        let brokerage = Self { customers, seed };
        if brokerage.securities() < MOST_HOLDINGS.into() {
            return Err(BrokerageError::Customers(customers));
        }
        Ok(brokerage)
    }

    /// Returns the number of customers. They are numbered from zero.
    pub fn customers(&self) -> u32 {
        self.customers
    }

    /// Returns the number of securities, numbered from zero: 685 per thousand customers.
    pub fn securities(&self) -> u32 {
        (u64::from(self.customers) * SECURITIES / 1_000) as u32
    }

    /// Returns a customer with all its rows. It is the same whichever node makes it.
    pub fn portfolio(&self, customer: CustomerKey) -> Portfolio {
        Portfolio::drawn(customer, self.securities(), &mut of_row(self.seed, customer.into()))
    }

    /// Returns the initial price of a security.
    pub fn last_trade(&self, security: SecurityKey) -> LastTrade {
        // The streams behind those of all customers.
        let random = &mut of_row(self.seed, 1 << 32 | u64::from(security));
        let price = I64::new(random.within(2_000, 3_000));
        LastTrade { price, open_price: price, volume: U64::new(0) }
    }
}

/// All rows of a customer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portfolio {
    /// Its number.
    pub key: CustomerKey,
    /// Its own row.
    pub customer: Customer,
    accounts: Vec<(Account, Vec<Holding>)>,
}

impl Portfolio {
    /// Returns one to ten rows.
    pub fn accounts(&self) -> impl Iterator<Item = (AccountKey, Account)> {
        (0..).zip(&self.accounts).map(|(number, (row, _))| ((self.key, number), *row))
    }

    /// Returns one to eighteen rows of each account.
    pub fn holdings(&self) -> impl Iterator<Item = (HoldingKey, Holding)> {
        (0..).zip(&self.accounts).flat_map(move |(account, (_, holdings))| {
            (0..).zip(holdings).map(move |(number, row)| ((self.key, account, number), *row))
        })
    }

    fn drawn(key: CustomerKey, securities: u32, random: &mut Random) -> Self {
        // The first and the last tier have a fifth of the customers each. The range is the number
        // of accounts.
        let (tier, least, most) = match random.within(1, 5) {
            1 => (1, 1, 4),
            5 => (3, 5, 10),
            _ => (2, 2, 8),
        };
        let accounts: Vec<_> = (0..random.within(least, most)).map(|_| account(securities, random)).collect();
        let customer = Customer {
            tax_id: random.digits(),
            last: random.text(5, 25),
            first: random.text(3, 20),
            tier,
            accounts: accounts.len() as u8,
            phone: random.digits(),
            email: random.text(10, 50),
        };
        Self { key, customer, accounts }
    }
}

fn account(securities: u32, random: &mut Random) -> (Account, Vec<Holding>) {
    let count = random.within(1, MOST_HOLDINGS);
    // Distinct securities: a random one, and others at equal distances from it.
    let (first, apart) = (random.within(0, securities - 1), securities / u32::from(MOST_HOLDINGS));
    let holdings = (0..u32::from(count)).map(|number| Holding {
        security: U32::new((first + number * apart) % securities),
        quantity: U32::new(random.within(1, 800)),
    });
    let holdings: Vec<_> = holdings.collect();
    let row = Account { balance: I64::new(random.within(0, 10_000_000)), holdings: count, name: random.text(20, 50) };
    (row, holdings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_as_many_as_they_say_and_holdings_differ() {
        let brokerage = Brokerage::new(400, 3).expect("enough");
        let mut tiers = [0; 4];
        for customer in 0..brokerage.customers() {
            let portfolio = brokerage.portfolio(customer);
            assert_eq!(portfolio, brokerage.portfolio(customer));
            tiers[usize::from(portfolio.customer.tier)] += 1;
            assert_eq!(portfolio.accounts().count(), usize::from(portfolio.customer.accounts));
            for (key, account) in portfolio.accounts() {
                let of_account = portfolio.holdings().filter(|((_, number, _), _)| *number == key.1);
                let mut securities: Vec<u32> = of_account.map(|(_, row)| row.security.get()).collect();
                assert_eq!(securities.len(), usize::from(account.holdings));
                securities.sort_unstable();
                securities.dedup();
                assert_eq!(securities.len(), usize::from(account.holdings), "one of each");
                assert!(securities.iter().all(|security| *security < brokerage.securities()));
            }
        }
        assert!(tiers[1..].iter().all(|count| *count > 40), "{tiers:?}");
        assert_eq!(Brokerage::new(20, 3), Err(BrokerageError::Customers(20)));
    }
}
