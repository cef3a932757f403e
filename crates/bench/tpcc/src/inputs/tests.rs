//! Shares of many inputs, with fixed seeds. Bounds are at least four standard deviations away.

use super::*;
use crate::last_name;

const HOME: DistrictKey = (2, 7);

fn inputs(warehouses: u16, chances: Chances) -> Inputs {
    let mut random = Random::seeded(31);
    let constants = Constants::for_run(Constants::for_load(&mut random), &mut random);
    let home = (HOME.0.min(warehouses), HOME.1);
    Inputs::new(Scale::new(warehouses).expect("some"), constants, chances, home, random).expect("it is there")
}

/// Asserts that a share is as expected, within the bounds of chance.
fn assert_share(count: usize, of: usize, expected: f64) {
    let deviation = (expected * (1.0 - expected) / of as f64).sqrt();
    let share = count as f64 / of as f64;
    assert!((share - expected).abs() <= 4.5 * deviation, "{share} where {expected} is expected");
}

/// Asserts that the values between `low` and `high` are drawn uniformly.
fn assert_uniform(values: impl Iterator<Item = u64>, low: u64, high: u64) {
    let kinds = (high - low + 1) as usize;
    let mut counts = vec![0; kinds];
    for value in values {
        assert!((low..=high).contains(&value), "{value} is not within {low} and {high}");
        counts[(value - low) as usize] += 1;
    }
    let all = counts.iter().sum();
    for count in counts {
        assert_share(count, all, 1.0 / kinds as f64);
    }
}

#[test]
fn new_orders() {
    let mut inputs = inputs(4, Chances::STANDARD);
    let orders: Vec<NewOrder> = (0..20_000).map(|_| inputs.new_order()).collect();
    assert!(orders.iter().all(|order| order.customer.0 == HOME.0));
    assert_uniform(orders.iter().map(|order| order.customer.1.into()), 1, 10);
    assert_uniform(orders.iter().map(|order| order.lines().len() as u64), 5, 15);
    let lines: Vec<&NewOrderLine> = orders.iter().flat_map(NewOrder::lines).collect();
    assert_uniform(lines.iter().map(|line| line.quantity.into()), 1, 10);

    let unused = |line: &&NewOrderLine| line.item == 100_001;
    let rolled_back = orders.iter().filter(|order| order.lines().last().is_some_and(|last| unused(&last))).count();
    assert_share(rolled_back, orders.len(), 0.01);
    assert_eq!(lines.iter().copied().filter(unused).count(), rolled_back, "only the last line is unused");
    assert!(lines.iter().all(|line| (1..=100_001).contains(&line.item)));

    let remote: Vec<u64> =
        lines.iter().map(|line| line.supply_warehouse).filter(|one| *one != HOME.0).map(u64::from).collect();
    assert_share(remote.len(), lines.len(), 0.01);
    for other in [1, 3, 4] {
        assert_share(remote.iter().filter(|one| **one == other).count(), remote.len(), 1.0 / 3.0);
    }
    assert!(orders.iter().any(|order| !order.is_all_local()));
}

#[test]
fn customers_are_not_uniform() {
    let mut inputs = inputs(4, Chances::STANDARD);
    let mut counts = vec![0_u32; 3_001];
    for _ in 0..60_000 {
        counts[inputs.new_order().customer.2 as usize] += 1;
    }
    assert_eq!(counts[0], 0);
    counts.sort_unstable_by(|one, two| two.cmp(one));
    let hottest: u32 = counts[..300].iter().sum();
    assert!(hottest > 15_000, "{hottest}: a tenth of the customers make more than a quarter of the orders");
}

#[test]
fn payments() {
    let mut inputs = inputs(4, Chances::STANDARD);
    let payments: Vec<Payment> = (0..40_000).map(|_| inputs.payment()).collect();
    assert_uniform(payments.iter().map(|payment| payment.district.1.into()), 1, 10);
    let (home, remote): (Vec<&Payment>, Vec<&Payment>) =
        payments.iter().partition(|payment| payment.customer_district.0 == HOME.0);
    assert_share(remote.len(), payments.len(), 0.15);
    assert!(home.iter().all(|payment| payment.customer_district == payment.district));
    assert_uniform(remote.iter().map(|payment| payment.customer_district.1.into()), 1, 10);
    for other in [1, 3, 4] {
        let to_other = remote.iter().filter(|payment| payment.customer_district.0 == other).count();
        assert_share(to_other, remote.len(), 1.0 / 3.0);
    }
    let by_name = payments.iter().filter(|payment| matches!(payment.customer, CustomerChoice::LastName(_))).count();
    assert_share(by_name, payments.len(), 0.6);
    assert_uniform(payments.iter().map(|payment| (payment.amount as u64 - 100) / 49_991), 0, 9);
    assert!(payments.iter().all(|payment| payment.district.0 == HOME.0));
    assert!(payments.iter().all(|payment| (100..=500_000).contains(&payment.amount)));
}

#[test]
fn the_others() {
    let mut inputs = inputs(4, Chances::STANDARD);
    let statuses: Vec<OrderStatus> = (0..20_000).map(|_| inputs.order_status()).collect();
    let by_name = statuses.iter().filter(|status| matches!(status.customer, CustomerChoice::LastName(_))).count();
    assert_share(by_name, statuses.len(), 0.6);
    assert_uniform(statuses.iter().map(|status| status.district.1.into()), 1, 10);
    assert_uniform((0..20_000).map(|_| inputs.delivery().carrier.into()), 1, 10);
    assert_eq!(inputs.delivery().warehouse, HOME.0);
    assert_uniform((0..20_000).map(|_| inputs.stock_level().threshold as u64), 10, 20);
    assert_eq!(inputs.stock_level().district, HOME);
}

#[test]
fn chances_can_be_chosen() {
    let always = Chances { rollback: 100, remote_item: 100, remote_payment: 100, by_name: 0 };
    let mut inputs = inputs(4, always);
    for _ in 0..1_000 {
        let order = inputs.new_order();
        assert!(order.lines().iter().all(|line| line.supply_warehouse != HOME.0));
        assert_eq!(order.lines().last().map(|line| line.item), Some(100_001));
        let payment = inputs.payment();
        assert_ne!(payment.customer_district.0, HOME.0);
        assert!(matches!(payment.customer, CustomerChoice::Number(1..=3_000)));
    }
}

#[test]
fn a_single_warehouse_has_no_other() {
    let mut inputs = inputs(1, Chances { remote_item: 100, ..Chances::STANDARD });
    for _ in 0..1_000 {
        assert!(inputs.new_order().is_all_local());
        assert_eq!(inputs.payment().customer_district.0, 1);
    }
}

#[test]
fn terminals_are_in_districts_that_there_are() {
    let random = Random::seeded(31);
    let constants = Constants::for_load(&mut random.clone());
    let scale = Scale::new(2).expect("two");
    for (warehouse, district) in [(0, 1), (3, 1), (1, 0), (1, 11)] {
        let inputs = Inputs::new(scale, constants, Chances::STANDARD, (warehouse, district), random.clone());
        assert_eq!(inputs.expect_err("it is not there"), ScaleError::District(warehouse, district));
    }
}

#[test]
fn names_are_those_that_customers_have() {
    let scale = Scale::new(2).and_then(|scale| scale.with_customers(30)).expect("small");
    let mut inputs = Inputs { scale, ..inputs(2, Chances { by_name: 100, ..Chances::STANDARD }) };
    let names: Vec<_> = (0..30).map(last_name).collect();
    for _ in 0..1_000 {
        let CustomerChoice::LastName(name) = inputs.order_status().customer else { panic!("always by name") };
        assert!(names.contains(&name));
    }
}
