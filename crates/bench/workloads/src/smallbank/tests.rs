//! Shares of many inputs, and a bank in ordinary maps.

use std::{collections::BTreeMap, convert::Infallible};

use drtm_drive::mix::Mix;
use drtm_testing::chance::{assert_distribution, assert_share, assert_uniform};
use zerocopy::little_endian::I64;

use super::{rules::Refusal, *};

const CUSTOMERS: u64 = 1_000;

fn bank() -> Bank {
    Bank::new(CUSTOMERS, 42).expect("some customers")
}

fn inputs(hot_set: HotSet, seed: u64) -> Inputs {
    Inputs::new(bank(), STANDARD_MIX, hot_set, seed).expect("possible")
}

/// Returns the customers of a transaction.
fn customers(transaction: Transaction) -> Vec<CustomerKey> {
    match transaction {
        Transaction::Balance { customer }
        | Transaction::DepositChecking { customer, .. }
        | Transaction::TransactSavings { customer, .. }
        | Transaction::WriteCheck { customer, .. } => vec![customer],
        Transaction::Amalgamate { from, to } | Transaction::SendPayment { from, to, .. } => vec![from, to],
    }
}

/// Balances of savings and checking accounts.
#[derive(Clone, Default)]
struct Rows {
    savings: BTreeMap<CustomerKey, i64>,
    checkings: BTreeMap<CustomerKey, i64>,
    ledger: Ledger,
}

impl Rows {
    fn of(bank: &Bank) -> Self {
        let mut rows = Self::default();
        for (customer, savings, checking) in bank.balances(0..bank.customers()) {
            rows.savings.insert(customer, savings.balance.get());
            rows.checkings.insert(customer, checking.balance.get());
        }
        rows
    }

    fn run(&mut self, transaction: Transaction) -> Result<(), Refusal> {
        match transaction {
            Transaction::Balance { customer } => {
                rules::balance(self.savings[&customer], self.checkings[&customer]);
            }
            Transaction::DepositChecking { customer, amount } => {
                let balance = rules::deposit_checking(self.checkings[&customer], amount)?;
                self.checkings.insert(customer, balance);
                self.ledger.put(amount);
            }
            Transaction::TransactSavings { customer, amount } => {
                let balance = rules::transact_savings(self.savings[&customer], amount)?;
                self.savings.insert(customer, balance);
                self.ledger.put(amount);
            }
            Transaction::Amalgamate { from, to } => {
                let balance = rules::amalgamate(self.savings[&from], self.checkings[&from], self.checkings[&to])?;
                self.savings.insert(from, 0);
                self.checkings.insert(from, 0);
                self.checkings.insert(to, balance);
            }
            Transaction::WriteCheck { customer, amount } => {
                let check = rules::write_check(self.savings[&customer], self.checkings[&customer], amount)?;
                self.checkings.insert(customer, check.checking);
                self.ledger.take(check.taken);
            }
            Transaction::SendPayment { from, to, amount } => {
                let (left, right) = rules::send_payment(self.checkings[&from], self.checkings[&to], amount)?;
                self.checkings.insert(from, left);
                self.checkings.insert(to, right);
            }
        }
        Ok(())
    }

    fn check(&self) -> Vec<Violation> {
        let Ok(violations) = check(self, &bank(), &self.ledger);
        violations
    }
}

impl View for Rows {
    type Error = Infallible;

    fn savings(&self) -> impl Iterator<Item = Result<(CustomerKey, Savings), Infallible>> {
        self.savings.iter().map(|(customer, balance)| Ok((*customer, Savings { balance: I64::new(*balance) })))
    }
    fn checkings(&self) -> impl Iterator<Item = Result<(CustomerKey, Checking), Infallible>> {
        self.checkings.iter().map(|(customer, balance)| Ok((*customer, Checking { balance: I64::new(*balance) })))
    }
}

#[test]
fn the_mix_is_what_it_says() {
    let mut inputs = inputs(HotSet::None, 1);
    let mut counts = [0; 6];
    for _ in 0..100_000 {
        counts[inputs.draw().kind() as usize] += 1;
    }
    assert_distribution(&counts, &Kind::ALL.map(|kind| f64::from(STANDARD_MIX.share(kind)) / 100.0));
    assert_eq!(Kind::ALL.map(|kind| STANDARD_MIX.share(kind)), [15, 15, 15, 15, 15, 25]);
}

#[test]
fn a_smaller_bank_may_have_as_many_hot_customers() {
    let bank = |customers| SmallBank::new(customers, Hot::DrtmH, 1).expect("possible");
    let hot = |bank: SmallBank| bank.inputs(0).expect("checked before").hot_customers();
    let smaller = bank(1_600).with_hot_share(25).expect("possible");
    assert_eq!((hot(bank(10_000)), hot(smaller)), (400, 400));
    assert!([0, 100].iter().all(|percent| bank(1_600).with_hot_share(*percent).is_err()));
}

#[test]
fn few_customers_have_most_transactions_and_not_the_other_way_round() {
    for (hot_set, hot, share) in [
        (HotSet::DRTM_H, 40, 0.9),
        (HotSet::Share { customers: 25, transactions: 60 }, 250, 0.6),
        (HotSet::Fixed { customers: 100, transactions: 90 }, 100, 0.9),
    ] {
        let mut inputs = inputs(hot_set, 2);
        let drawn: Vec<_> = (0..100_000).map(|_| customers(inputs.draw())).collect();
        let is_hot = |customer: &CustomerKey| *customer < hot;
        assert!(drawn.iter().all(|of_one| of_one.iter().all(is_hot) || !of_one.iter().any(is_hot)));
        assert_share(drawn.iter().filter(|of_one| is_hot(&of_one[0])).count(), drawn.len(), share);
        for place in [0, 1] {
            let all = || drawn.iter().filter_map(|of_one| of_one.get(place).copied());
            assert_uniform(all().filter(is_hot), 0, hot - 1);
            assert_uniform(all().filter(|customer| !is_hot(customer)), hot, CUSTOMERS - 1);
        }
    }
}

#[test]
fn without_hot_customers_all_are_alike_and_nobody_pays_himself() {
    let mut inputs = inputs(HotSet::None, 3);
    let pairs: Vec<_> = (0..100_000).map(|_| customers(inputs.of(Kind::SendPayment))).collect();
    for place in [0, 1] {
        assert_uniform(pairs.iter().map(|pair| pair[place]), 0, CUSTOMERS - 1);
    }
    assert!(pairs.iter().all(|pair| pair[0] != pair[1]));
}

#[test]
fn impossible_banks_are_refused() {
    assert_eq!(Bank::new(1, 0), Err(BankError::Customers(1)));
    assert!(Bank::new((1 << 32) + 1, 0).is_err());
    for (hot_set, hot) in [
        (HotSet::Share { customers: 0, transactions: 90 }, 0),
        (HotSet::Share { customers: 100, transactions: 90 }, 1_000),
        (HotSet::ALOMARI, 1_000),
        (HotSet::Fixed { customers: 1_001, transactions: 90 }, 1_001),
        (HotSet::Fixed { customers: 999, transactions: 90 }, 999),
    ] {
        let error = Inputs::new(bank(), STANDARD_MIX, hot_set, 1).err();
        assert_eq!(error, Some(BankError::HotSet { hot, customers: CUSTOMERS }));
    }
}

#[test]
fn money_moves_and_is_not_lost() {
    // The amounts are large enough to cause every refusal and penalty.
    let amounts =
        Amounts { deposit_checking: 300_000, transact_savings: -900_000, write_check: 700_000, send_payment: 900_000 };
    let mut inputs = inputs(HotSet::DRTM_H, 4).with_amounts(amounts);
    let mut rows = Rows::of(&bank());
    assert_eq!(rows.check(), []);
    let mut refused = [0; 6];
    for _ in 0..20_000 {
        let transaction = inputs.draw();
        if rows.run(transaction) == Err(Refusal::Overdrawn) {
            refused[transaction.kind() as usize] += 1;
        }
    }
    assert_eq!(rows.check(), []);
    assert_eq!(refused.map(|count| count > 100), [false, false, true, false, false, true]);
    assert!(rows.checkings.values().any(|balance| *balance < 0) && rows.ledger.taken % 700_000 != 0, "penalties");
}

#[test]
fn what_is_wrong_is_found() {
    let rows = Rows::of(&bank());
    let conditions = |change: fn(&mut Rows)| {
        let mut rows = rows.clone();
        change(&mut rows);
        rows.check().into_iter().map(|violation| (violation.condition, violation.customer)).collect::<Vec<_>>()
    };
    assert_eq!(conditions(|rows| rows.ledger.take(1)), [(Condition::MoneyIsConserved, None)]);
    let moved = conditions(|rows| {
        let all = rows.savings[&5] + 1;
        rows.savings.insert(5, -1);
        *rows.checkings.get_mut(&6).expect("a customer") += all;
    });
    assert_eq!(moved, [(Condition::SavingsAreNotNegative, Some(5))]);
    let missing = conditions(|rows| {
        let all = rows.savings.remove(&7).expect("a customer");
        rows.savings.insert(CUSTOMERS, all);
    });
    assert_eq!(missing, [7, CUSTOMERS].map(|customer| (Condition::SavingsAreThere, Some(customer))));
    let missing = conditions(|rows| {
        rows.checkings.remove(&7);
    });
    assert_eq!(missing, [(Condition::MoneyIsConserved, None), (Condition::CheckingIsThere, Some(7))]);
}

#[test]
fn a_seed_s_bank_and_inputs_stay_what_they_are() {
    let balances: Vec<_> = bank().balances(0..3).map(|(_, one, two)| (one.balance.get(), two.balance.get())).collect();
    assert_eq!(balances, [(3_819_076, 3_918_370), (2_472_551, 1_814_858), (2_034_561, 4_811_856)]);
    assert_eq!(bank().balances(2..3).next(), bank().balances(0..3).last());
    assert_ne!(Bank::new(3, 1).map(|bank| bank.opening()), Bank::new(3, 2).map(|bank| bank.opening()));
    let only = Mix::new([(Kind::SendPayment, 100)]).expect("100 percent");
    let mut inputs = Inputs::new(bank(), only, HotSet::DRTM_H, 5).expect("possible");
    let drawn: Vec<_> = (0..3).map(|_| customers(inputs.draw())).collect();
    assert_eq!(drawn, [[3, 2], [18, 2], [36, 34]]);
}
