//! TPC-C and SmallBank: what DrTM's section 4 and Fig. 7 say of them.

use super::{
    brute_force::{Instance, Verdict, search},
    random::parse,
};
use crate::{
    chopping::{Chopping, Execution},
    insist::Refusal,
    options::Options,
    program::Program,
    programs::{SMALLBANK, TPCC},
};

/// The pieces of TPC-C's transactions that write, by the names of their members.
fn writers(options: Options) -> [Vec<String>; 3] {
    let program = parse(TPCC);
    let chopping = Chopping::finest(&program, options);
    ["new-order", "payment", "delivery"].map(|name| {
        let names = |piece: &crate::Merged| {
            piece.members().iter().map(|&member| program.piece_name(member)).collect::<Vec<_>>().join(" ")
        };
        chopping.transaction(name).expect("a transaction").pieces().iter().map(names).collect()
    })
}

#[test]
fn by_default_almost_everything_of_tpcc_is_merged() {
    let [new_order, payment, delivery] = writers(Options::NONE);
    assert_eq!(new_order, ["warehouse", "district-idx district customer order queue item stock order-line"]);
    assert_eq!((payment.len(), delivery.len()), (1, 1));
    let program = parse(TPCC);
    let chopping = Chopping::finest(&program, Options::NONE);
    for reader in ["order-status", "stock-level"] {
        assert_eq!(chopping.transaction(reader).expect("a transaction").pieces().len(), 1, "{reader}");
    }
}

#[test]
fn reordering_takes_three_pieces_out_of_new_order_and_runs_the_one_that_may_abort_first() {
    let [new_order, ..] = writers(Options { reordering: true, ..Options::NONE });
    let district = "district-idx district order queue stock order-line";
    assert_eq!(new_order, ["item", "warehouse", district, "customer"]);
}

#[test]
fn commutativity_separates_the_sums_of_the_year() {
    let options = Options { reordering: true, split_search: true, ..Options::NONE };
    let [_, without, _] = writers(options);
    assert!(without.contains(&"warehouse district customer history".to_owned()), "{without:?}");
    let [_, with, _] = writers(Options { commutativity: true, ..options });
    assert_eq!(with, ["warehouse", "district-idx", "district", "customer-idx", "customer", "history"]);
}

#[test]
fn searches_of_stationary_indexes_leave_the_conflicting_pieces() {
    let without = writers(Options { split_search: false, ..Options::ALL });
    assert!(without[0].iter().any(|piece| piece.starts_with("district-idx district")), "{without:?}");
    assert!(without[1].contains(&"district-idx district customer-idx customer".to_owned()), "{without:?}");
    let with = writers(Options::ALL);
    for (transaction, index) in [(0, "district-idx"), (1, "customer-idx"), (1, "district-idx"), (2, "customer-idx")] {
        assert!(with[transaction].contains(&index.to_owned()), "{index} of {with:?}");
    }
}

#[test]
fn delivery_defers_the_balance_and_claims_its_orders() {
    let [_, _, delivery] = writers(Options::ALL);
    assert_eq!(delivery, ["queue", "order-idx", "order", "order-line", "customer-idx", "customer"]);
    let [_, _, undeferred] = writers(Options { deferral: false, ..Options::ALL });
    // The search for the customer must run after the order and before the balance.
    assert_eq!(undeferred, ["queue order-idx order order-line customer-idx customer"]);
    let [_, _, unclaimed] = writers(Options { claims: false, ..Options::ALL });
    assert!(unclaimed.contains(&"queue order-idx order order-line".to_owned()), "{unclaimed:?}");

    let program = parse(TPCC);
    let chopping = Chopping::finest(&program, Options::ALL);
    let [deferral] = chopping.deferrals() else { panic!("{:?}", chopping.deferrals()) };
    assert_eq!(deferral.column, "customer.balance");
    let after_publication = |name: &str| chopping.transaction(name).map(crate::Chopped::execution);
    assert_eq!(after_publication("order-status"), Some(Execution::TwoRounds { after_publication: true }));
    assert_eq!(after_publication("stock-level"), Some(Execution::TwoRounds { after_publication: false }));
}

#[test]
fn order_status_in_pieces_would_forbid_both() {
    let program = parse(TPCC);
    let chopping = Chopping::finest(&program, Options { two_rounds: false, ..Options::ALL });
    assert!(chopping.deferrals().is_empty());
    let [undeferred] = chopping.undeferred() else { panic!("{:?}", chopping.undeferred()) };
    assert!(undeferred.path.contains("order-status"), "{}", undeferred.path);
    assert!(chopping.claims().iter().all(|claim| claim.void_by.is_some()));
    assert_eq!(chopping.transaction("delivery").map(|delivery| delivery.pieces().len()), Some(1), "{chopping}");
}

#[test]
fn new_order_counts_orders_in_one_piece_with_all_it_inserts() {
    let [new_order, ..] = writers(Options::ALL);
    let conflicting = "district order queue stock order-line";
    assert_eq!(new_order, ["item", "warehouse", "district-idx", conflicting, "customer"]);
    // Reading and counting apart is refused.
    let program = parse(&TPCC.replace(
        "read district.tax, update district.next-order",
        "read district.next-order\npiece count after district: update district.next-order",
    ));
    let wanted: [&[&str]; 6] = [
        &["item"],
        &["warehouse"],
        &["district-idx", "district"],
        &["count"],
        &["order", "queue", "stock", "order-line"],
        &["customer"],
    ];
    let refused = Chopping::insist(&program, Options::ALL, &[("new-order", &wanted)]).unwrap_err();
    let Refusal::Cycle(cycle) = refused else { panic!("{refused}") };
    let expected =
        "new-order/district -[district]- new-order#2/count -[district]- new-order/count = new-order/district";
    assert_eq!(cycle.to_string(), expected);
}

#[test]
fn smallbank_stays_whole() {
    let program = parse(SMALLBANK);
    for options in [Options::NONE, Options::ALL, Options { two_rounds: false, ..Options::ALL }] {
        let chopping = Chopping::finest(&program, options);
        for chopped in chopping.transactions() {
            assert_eq!(chopped.pieces().len(), 1, "{} with {options:?}", chopped.name());
        }
        assert!(chopping.deferrals().is_empty());
    }
}

/// Searches all interleavings of some of the workload's transactions.
fn search_all(program: &Program, chopping: &Chopping, names: &[&str]) {
    let place =
        |name: &&str| program.transactions.iter().position(|known| known.name == **name).expect("a transaction");
    let instances: Vec<_> = names.iter().map(|name| Instance { transaction: place(name), aborts_in: None }).collect();
    assert_eq!(search(program, chopping, &instances), Verdict::Serializable, "{names:?}");
}

#[test]
fn every_interleaving_of_chopped_tpcc_is_serializable() {
    let program = parse(TPCC);
    let chopping = Chopping::finest(&program, Options::ALL);
    for names in [
        ["new-order", "delivery", "payment", "order-status"],
        ["new-order", "new-order", "delivery", "stock-level"],
        ["new-order", "delivery", "delivery", "order-status"],
        ["payment", "payment", "delivery", "order-status"],
    ] {
        search_all(&program, &chopping, &names);
    }
}
