//! A fresh population satisfies all conditions. Each kind of damage violates the conditions about
//! it, at its place, and no others.

use std::{collections::BTreeSet, num::NonZeroU64};

use zerocopy::little_endian::{I64, U32, U64};

use super::*;
use crate::{Loader, NewOrder, Population};

/// Returns a population with ten customers and orders in each district; orders 8 to 10 are
/// undelivered.
fn fresh() -> (Population, Scale) {
    let scale = Scale::new(2).and_then(|scale| scale.with_customers(10)?.with_items(20)).expect("a small scale");
    (Population::of(&Loader::new(scale, 11, NonZeroU64::MIN)), scale)
}

/// Damages a fresh population, and expects violations of the conditions of these numbers, each at
/// its place.
fn broken_by(damage: impl FnOnce(&mut Population), expected: &[(u8, Place)]) {
    let (mut rows, scale) = fresh();
    damage(&mut rows);
    let Ok(violations) = check(&rows, &scale);
    let found: BTreeSet<(u8, Place)> = violations.iter().map(|one| (one.condition.number(), one.place)).collect();
    assert_eq!(found, expected.iter().copied().collect(), "{violations:#?}");
}

fn add(to: &mut I64, cents: i64) {
    *to = I64::new(to.get() + cents);
}

const HOME: (u16, u8) = (2, 3);
const DISTRICT: Place = Place::District(HOME);
const WAREHOUSE: Place = Place::Warehouse(2);

fn customer_of(rows: &Population, order: OrderKey) -> CustomerKey {
    (order.0, order.1, rows.orders[&order].customer.get())
}

#[test]
fn a_fresh_population_is_consistent() {
    let (rows, scale) = fresh();
    let Ok(violations) = check(&rows, &scale);
    assert_eq!(violations, []);
}

#[test]
fn the_first_is_found_alone() {
    // The district and its history exceed the warehouse. Then the eighth condition is violated too,
    // unless the history is the warehouse's.
    broken_by(
        |rows| add(&mut rows.districts.get_mut(&HOME).expect("it is there").ytd, 5),
        &[(1, WAREHOUSE), (9, DISTRICT)],
    );
}

#[test]
fn the_first_and_the_eighth() {
    broken_by(
        |rows| add(&mut rows.warehouses.get_mut(&2).expect("it is there").ytd, 5),
        &[(1, WAREHOUSE), (8, WAREHOUSE)],
    );
}

#[test]
fn the_second() {
    broken_by(|rows| rows.districts.get_mut(&HOME).expect("it is there").next_order = U32::new(12), &[(2, DISTRICT)]);
}

#[test]
fn the_second_by_the_last_new_order() {
    let last = (2, 3, 10);
    broken_by(
        |rows| {
            rows.new_orders.remove(&last);
            rows.orders.get_mut(&last).expect("it is there").carrier = 1;
            for (_, line) in rows.order_lines.range_mut((2, 3, 10, 0)..=(2, 3, 10, 255)) {
                (line.delivery_date, line.amount) = (U64::new(1), I64::new(0));
            }
            rows.customers.get_mut(&(2, 3, 1)).expect("it is there").account.delivery_count = U32::new(1);
        },
        &[(2, DISTRICT)],
    );
}

#[test]
fn the_second_does_not_apply_without_new_orders() {
    broken_by(
        |rows| {
            for number in 8..=10 {
                rows.new_orders.remove(&(2, 3, number));
                rows.orders.get_mut(&(2, 3, number)).expect("it is there").carrier = 1;
            }
            for (_, line) in rows.order_lines.range_mut((2, 3, 8, 0)..=(2, 3, 10, 255)) {
                (line.delivery_date, line.amount) = (U64::new(1), I64::new(0));
            }
            rows.customers.get_mut(&(2, 3, 1)).expect("it is there").account.delivery_count = U32::new(3);
        },
        &[],
    );
}

#[test]
fn the_third() {
    let middle = (2, 3, 9);
    broken_by(
        |rows| {
            rows.new_orders.remove(&middle);
            rows.orders.get_mut(&middle).expect("it is there").carrier = 1;
            for (_, line) in rows.order_lines.range_mut((2, 3, 9, 0)..=(2, 3, 9, 255)) {
                (line.delivery_date, line.amount) = (U64::new(1), I64::new(0));
            }
            rows.customers.get_mut(&(2, 3, 1)).expect("it is there").account.delivery_count = U32::new(1);
        },
        &[(3, DISTRICT)],
    );
}

#[test]
fn the_fourth_and_the_sixth() {
    broken_by(
        |rows| assert!(rows.order_lines.remove(&(2, 3, 4, 5)).is_some()),
        &[(4, DISTRICT), (6, Place::Order((2, 3, 4)))],
    );
}

#[test]
fn the_sixth_where_the_district_s_sum_is_right() {
    broken_by(
        |rows| {
            // A line too many here, one too few there.
            let line = rows.order_lines.remove(&(2, 3, 4, 5)).expect("each order has five");
            rows.order_lines.insert((2, 3, 5, 200), line);
        },
        &[(6, Place::Order((2, 3, 4))), (6, Place::Order((2, 3, 5)))],
    );
}

#[test]
fn the_fifth() {
    // An order without a carrier that is not new: its lines are unaware of it.
    let order = (2, 3, 4);
    broken_by(
        |rows| {
            rows.orders.get_mut(&order).expect("it is there").carrier = 0;
            for (_, line) in rows.order_lines.range_mut((2, 3, 4, 0)..=(2, 3, 4, 255)) {
                line.delivery_date = U64::new(0);
            }
        },
        &[(5, Place::Order(order))],
    );
}

#[test]
fn the_fifth_the_other_way() {
    let order = (2, 3, 8);
    broken_by(
        |rows| {
            rows.orders.get_mut(&order).expect("it is there").carrier = 7;
            for (_, line) in rows.order_lines.range_mut((2, 3, 8, 0)..=(2, 3, 8, 255)) {
                (line.delivery_date, line.amount) = (U64::new(1), I64::new(0));
            }
        },
        &[(5, Place::Order(order))],
    );
}

#[test]
fn the_seventh() {
    let line = (2, 3, 4, 1);
    let damage =
        |rows: &mut Population| rows.order_lines.get_mut(&line).expect("it is there").delivery_date = U64::new(0);
    broken_by(damage, &[(7, Place::OrderLine(line))]);
}

#[test]
fn the_eighth_and_the_ninth() {
    // The payment of a customer of the other warehouse, which only this district's sums miss.
    broken_by(
        |rows| {
            let mut payment = rows.histories[&(2, 0, 21)];
            (payment.customer_warehouse, payment.customer_district) = (1.into(), 1);
            (payment.customer, payment.amount) = (U32::new(1), I64::new(300));
            rows.histories.insert((2, 1, 1), payment);
            let payer = rows.customers.get_mut(&(1, 1, 1)).expect("it is there");
            add(&mut payer.account.balance, -300);
            add(&mut payer.account.ytd_payment, 300);
        },
        &[(8, WAREHOUSE), (9, DISTRICT)],
    );
}

#[test]
fn the_ninth_where_the_warehouse_s_sum_is_right() {
    broken_by(
        |rows| rows.histories.get_mut(&(2, 0, 21)).expect("it is there").district = 4,
        &[(9, DISTRICT), (9, Place::District((2, 4)))],
    );
}

#[test]
fn the_tenth() {
    // Payments and debts agree, but not with the history.
    broken_by(
        |rows| {
            let customer = rows.customers.get_mut(&(2, 3, 4)).expect("it is there");
            add(&mut customer.account.balance, -5);
            add(&mut customer.account.ytd_payment, 5);
        },
        &[(10, Place::Customer((2, 3, 4)))],
    );
}

#[test]
fn the_tenth_and_the_twelfth_by_what_was_delivered() {
    let (rows, _) = fresh();
    let place = Place::Customer(customer_of(&rows, (2, 3, 4)));
    let damage =
        |rows: &mut Population| add(&mut rows.order_lines.get_mut(&(2, 3, 4, 1)).expect("it is there").amount, 5);
    broken_by(damage, &[(10, place), (12, place)]);
}

#[test]
fn the_eleventh() {
    let damage = |rows: &mut Population| {
        rows.customers.get_mut(&(2, 3, 4)).expect("it is there").account.delivery_count = U32::new(1);
    };
    broken_by(damage, &[(11, DISTRICT)]);
}

#[test]
fn the_twelfth() {
    let damage = |rows: &mut Population| {
        add(&mut rows.customers.get_mut(&(2, 3, 4)).expect("it is there").account.ytd_payment, 5)
    };
    broken_by(damage, &[(12, Place::Customer((2, 3, 4)))]);
}

#[test]
fn rows_that_belong_to_none_are_found() {
    let line = (2, 3, 11, 1);
    broken_by(
        |rows| {
            let row = rows.order_lines[&(2, 3, 10, 1)];
            rows.order_lines.insert(line, row);
        },
        &[(4, DISTRICT), (6, Place::Order((2, 3, 11))), (7, Place::OrderLine(line))],
    );
    broken_by(|rows| _ = rows.new_orders.insert((2, 3, 11), NewOrder), &[(2, DISTRICT), (11, DISTRICT)]);
}

#[test]
fn nothing_at_all_is_not_consistent() {
    let scale = Scale::new(2).expect("two");
    let Ok(violations) = check(&Population::default(), &scale);
    let expected = (1..=2).flat_map(|warehouse| (1..=10).map(move |district| Place::District((warehouse, district))));
    let next_order = violations.iter().filter(|one| one.condition == Condition::NextOrderFollowsLast);
    assert!(next_order.map(|one| one.place).eq(expected), "{violations:#?}");
    // One district with all its rows.
    let is_home = |district: u8| district == HOME.1;
    broken_by(
        |rows| {
            rows.districts.remove(&HOME);
            rows.customers.retain(|key, _| (key.0, key.1) != HOME);
            rows.histories.retain(|_, row| row.warehouse.get() != HOME.0 || !is_home(row.district));
            rows.orders.retain(|key, _| (key.0, key.1) != HOME);
            rows.new_orders.retain(|key, _| (key.0, key.1) != HOME);
            rows.order_lines.retain(|key, _| (key.0, key.1) != HOME);
            add(&mut rows.warehouses.get_mut(&2).expect("it is there").ytd, -10_000);
        },
        &[(2, DISTRICT), (11, DISTRICT)],
    );
}

#[test]
fn a_delivery_keeps_all_conditions() {
    broken_by(
        |rows| {
            let order = (2, 3, 8);
            let customer = customer_of(rows, order);
            rows.new_orders.remove(&order);
            rows.orders.get_mut(&order).expect("it is there").carrier = 7;
            let customer = rows.customers.get_mut(&customer).expect("it is there");
            for (_, line) in rows.order_lines.range_mut((2, 3, 8, 0)..=(2, 3, 8, 255)) {
                line.delivery_date = U64::new(9);
                add(&mut customer.account.balance, line.amount.get());
            }
            customer.account.delivery_count = U32::new(1);
        },
        &[],
    );
}

#[test]
fn damaged_amounts_do_not_overflow() {
    let (mut rows, scale) = fresh();
    for line in rows.order_lines.values_mut() {
        line.amount = I64::new(i64::MAX);
    }
    for payment in rows.histories.values_mut() {
        payment.amount = I64::new(i64::MIN);
    }
    let Ok(violations) = check(&rows, &scale);
    assert!(violations.iter().any(|one| one.condition == Condition::WarehouseIsSumOfHistory));
    assert!(
        violations[0].to_string().starts_with("condition 8 (WarehouseIsSumOfHistory) does not hold at Warehouse(1)")
    );
}
