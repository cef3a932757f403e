//! Published examples: those of Shasha, Llirbat, Simon and Valduriez (Transaction Chopping, 1995),
//! of Shasha and Bonnet's book (Database Tuning, appendix on chopping), and DrTM's Fig. 5.
//!
//! The first two have a set of transactions that run once each, so all of theirs are alone.

use super::random::parse;
use crate::{chopping::Chopping, insist::Refusal, merge::Why, options::Options, program::Program};

/// Returns the names of the pieces that run together.
fn pieces(chopping: &Chopping, transaction: &str) -> Vec<String> {
    let names = |piece: &crate::Merged| {
        piece.members().iter().map(|&member| chopping.program().piece_name(member)).collect::<Vec<_>>().join(" ")
    };
    chopping.transaction(transaction).expect("a transaction").pieces().iter().map(names).collect()
}

fn finest(program: &Program, options: Options, transaction: &str) -> Vec<String> {
    pieces(&Chopping::finest(program, options), transaction)
}

const THREE: &str = "
    table x
    table y
    transaction t1 alone
    piece rx: read x
    piece wx: update x
    piece ry: read y
    piece wy: update y
    transaction t2 alone
    piece t2: update x
    transaction t3 alone
    piece t3: update y";

#[test]
fn a_transaction_between_two_that_share_nothing_is_chopped_once() {
    let program = parse(THREE);
    assert_eq!(finest(&program, Options::NONE, "t1"), ["rx wx", "ry wy"]);
    let wanted: [&[&str]; 2] = [&["rx", "wx"], &["ry", "wy"]];
    assert!(Chopping::insist(&program, Options::NONE, &[("t1", &wanted)]).is_ok());
}

#[test]
fn reading_and_writing_the_same_item_apart_is_refused() {
    let program = parse(THREE);
    let wanted: [&[&str]; 3] = [&["rx"], &["wx"], &["ry", "wy"]];
    let refused = Chopping::insist(&program, Options::NONE, &[("t1", &wanted)]).unwrap_err();
    let Refusal::Cycle(cycle) = refused else { panic!("{refused}") };
    assert_eq!(cycle.to_string(), "t1/rx -[x]- t2/t2 -[x]- t1/wx = t1/rx");
}

#[test]
fn a_transaction_that_shares_both_items_forbids_the_chopping() {
    let program = parse(&THREE.replace("piece t2: update x", "piece t2: update x, update y"));
    assert_eq!(finest(&program, Options::NONE, "t1"), ["rx wx ry wy"]);
    let wanted: [&[&str]; 2] = [&["rx", "wx"], &["ry", "wy"]];
    let refused = Chopping::insist(&program, Options::NONE, &[("t1", &wanted)]).unwrap_err();
    let Refusal::Cycle(cycle) = refused else { panic!("{refused}") };
    assert_eq!(cycle.to_string(), "t1/rx -[x]- t2/t2 -[y]- t1/ry = t1/rx");
}

/// Accounts a, d, f of branch b, and e, g of branch c. The last transaction audits both branches.
const BANK: &str = "
    table a
    table b
    table c
    table d
    table e
    table f
    table g
    transaction t1 alone
    piece a after nothing: update a
    piece b after nothing: update b
    transaction t2 alone
    piece d after nothing: update d
    piece b after nothing: update b
    transaction t3 alone
    piece e after nothing: update e
    piece c after nothing: update c
    transaction t4 alone
    piece f: read f
    transaction t5 alone
    piece e: read e
    transaction t6 alone
    piece a after nothing: read a
    piece f after nothing: read f
    piece d after nothing: read d
    piece b after nothing: read b
    piece e after nothing: read e
    piece g after nothing: read g
    piece c after nothing: read c";

#[test]
fn an_audit_is_chopped_by_branches() {
    let program = parse(BANK);
    assert_eq!(finest(&program, Options::NONE, "t6"), ["a f d b", "e g c"]);
    for whole in ["t1", "t2", "t3"] {
        assert_eq!(finest(&program, Options::NONE, whole).len(), 1, "{whole}");
    }
    // What conflicts with nothing leaves the pieces, if these can be reordered.
    let reordered = Options { reordering: true, ..Options::NONE };
    assert_eq!(finest(&program, reordered, "t6"), ["a d b", "f", "e c", "g"]);
}

#[test]
fn transfers_are_chopped_if_audits_read_one_moment() {
    let program = parse(BANK);
    let options = Options { two_rounds: true, ..Options::NONE };
    for (transfer, expected) in [("t1", ["a", "b"]), ("t2", ["d", "b"]), ("t3", ["e", "c"])] {
        assert_eq!(finest(&program, options, transfer), expected, "{transfer}");
    }
}

/// A purchase first checks that there is enough cash.
const PURCHASE: &str = "
    table cash
    table inventory
    transaction purchase
    piece check, may abort: read cash
    piece store: add inventory
    piece pay: update cash";

#[test]
fn checking_and_paying_apart_is_refused() {
    let program = parse(PURCHASE);
    let wanted: [&[&str]; 2] = [&["check", "store"], &["pay"]];
    let refused = Chopping::insist(&program, Options::ALL, &[("purchase", &wanted)]).unwrap_err();
    let Refusal::Cycle(cycle) = refused else { panic!("{refused}") };
    let expected = "purchase/check -[cash]- purchase#2/pay -[cash]- purchase/pay = purchase/check";
    assert_eq!(cycle.to_string(), expected);
    // The inventory waits for nothing.
    let program = parse(&PURCHASE.replace("pay:", "pay after check:").replace("store:", "store after check:"));
    assert_eq!(finest(&program, Options::ALL, "purchase"), ["check pay", "store"]);
}

#[test]
fn drtm_figure_5_merges_both_pieces() {
    let program = parse(
        "table a
         table b
         table c
         transaction tx1
         piece a: update a
         piece b: update b
         transaction tx2
         piece b: read b
         piece c: update c",
    );
    let chopping = Chopping::finest(&program, Options::NONE);
    assert_eq!(pieces(&chopping, "tx1"), ["a b"]);
    let [merge] = chopping.transaction("tx1").expect("a transaction").merges() else { panic!("one merge") };
    let Why::Cycle(cycle) = &merge.why else { panic!("{}", merge.why) };
    assert_eq!(cycle.to_string(), "tx1/a -[a]- tx1#2/a = tx1#2/b -[b]- tx1/b = tx1/a");
}
