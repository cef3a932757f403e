//! Deliberate faults of the analysis, a program for each: without the fault every interleaving is
//! serializable, and with it one is not.

use super::{
    brute_force::{Instance, Verdict, search},
    properties::is_finest,
    random::parse,
};
use crate::{
    chopping::Chopping,
    mutation::{self, Mutation},
    options::Options,
};

/// Returns whether the brute-force search accepts a chopping with `fault`, and one without.
/// `instances` are the names of transactions, and the pieces in which they are aborted.
fn accepts(fault: Mutation, options: Options, program: &str, instances: &[(&str, Option<&str>)]) -> (bool, bool) {
    let tables = "table a x y\ntable b x\ntable c x\n".to_owned();
    let program = parse(&(tables + program));
    let instance = |&(name, aborts_in): &(&str, Option<&str>)| {
        let transaction = program.transactions.iter().position(|known| known.name == name).expect("a transaction");
        let place = |abort: &str| program.piece(name, abort).expect("a piece").piece;
        Instance { transaction, aborts_in: aborts_in.map(place) }
    };
    let instances: Vec<_> = instances.iter().map(instance).collect();
    let verdict = |chopping| match search(&program, &chopping, &instances) {
        Verdict::Serializable => true,
        Verdict::Not(_) => false,
        Verdict::TooMany => panic!("a smaller program will do"),
    };
    let sound = verdict(Chopping::finest(&program, options));
    (verdict(mutation::with(fault, || Chopping::finest(&program, options))), sound)
}

/// What must be found: sound with all its rules, and not without one.
const FOUND: (bool, bool) = (false, true);

#[test]
fn one_instance() {
    let program = "
        transaction t
        piece first after nothing: update a.x
        piece second after nothing: update b.x";
    assert_eq!(accepts(Mutation::OneInstance, Options::ALL, program, &[("t", None), ("t", None)]), FOUND);
}

#[test]
fn long_cycles_overlooked() {
    let program = "
        transaction t alone
        piece first after nothing: update a.x
        piece second after nothing: update b.x
        transaction u
        piece u: update a.x, update c.x
        transaction v
        piece v: update c.x, update b.x";
    let instances = [("t", None), ("u", None), ("v", None)];
    assert_eq!(accepts(Mutation::LongCyclesOverlooked, Options::ALL, program, &instances), FOUND);
}

#[test]
fn abort_after_effects() {
    let program = "
        transaction t
        piece effect: update a.x
        piece abort after effect, may abort: read c.x";
    let instances = [("t", Some("abort")), ("t", None)];
    assert_eq!(accepts(Mutation::AbortAfterEffects, Options::ALL, program, &instances), FOUND);
}

#[test]
fn own_conflicts_forgotten() {
    let program = "
        transaction t alone
        piece write after nothing: update a.x
        piece read after nothing, may abort: read a.x";
    assert_eq!(accepts(Mutation::OwnConflictsForgotten, Options::ALL, program, &[("t", None)]), FOUND);
}

#[test]
fn dependencies_forgotten() {
    let program = "
        transaction t alone
        piece write after nothing: update a.x
        piece read after write, may abort: read b.x";
    assert_eq!(accepts(Mutation::DependenciesForgotten, Options::ALL, program, &[("t", None)]), FOUND);
}

#[test]
fn adds_unseen() {
    let program = "
        transaction t
        piece first after nothing: add a.x
        piece second after nothing: add b.x
        transaction u
        piece u: read a.x, read b.x, append c";
    let options = Options { deferral: false, ..Options::ALL };
    assert_eq!(accepts(Mutation::AddsUnseen, options, program, &[("t", None), ("u", None)]), FOUND);
}

#[test]
fn stationary_assumed() {
    let program = "
        transaction t
        piece first after nothing: search a
        piece second after nothing: search b, append c
        transaction u
        piece u: insert a, insert b";
    assert_eq!(accepts(Mutation::StationaryAssumed, Options::ALL, program, &[("t", None), ("u", None)]), FOUND);
}

#[test]
fn inserts_without_columns() {
    let program = "
        transaction t
        piece first after nothing: read a.x
        piece second after nothing: read b.x, append c
        transaction u
        piece u: insert a, insert b";
    assert_eq!(accepts(Mutation::InsertsWithoutColumns, Options::ALL, program, &[("t", None), ("u", None)]), FOUND);
}

#[test]
fn deferral_without_premise() {
    let program = "
        transaction publisher
        piece seen after nothing: update b.x
        piece sum after nothing: add a.x
        transaction subscriber
        piece subscriber: update a.x, update b.x";
    let instances = [("publisher", None), ("subscriber", None)];
    assert_eq!(accepts(Mutation::DeferralWithoutPremise, Options::ALL, program, &instances), FOUND);
}

#[test]
fn claim_without_premise() {
    let program = "
        transaction submit
        piece submit: insert a, insert b
        transaction work
        piece take: remove b
        piece first after take: update a.x by take
        piece second after take: update a.y by take
        transaction look
        piece look: read a, append c";
    let instances = [("submit", None), ("work", None), ("look", None)];
    assert_eq!(accepts(Mutation::ClaimWithoutPremise, Options::ALL, program, &instances), FOUND);
}

/// The read sees `before` and not `after`. `through` comes after the latter and before the former.
#[test]
fn moments_forgotten() {
    let program = "
        transaction through alone
        piece first after nothing: update a.x
        piece second after nothing: update b.x
        transaction before
        piece before: update a.x, update a.y
        transaction after
        piece after: update b.x, update c.x
        transaction read
        piece read: read a.y, read c.x";
    let instances = [("through", None), ("before", None), ("after", None), ("read", None)];
    assert_eq!(accepts(Mutation::MomentsForgotten, Options::ALL, program, &instances), FOUND);
}

#[test]
fn reads_before_publication() {
    let program = "
        transaction publisher
        piece seen after nothing: update b.x
        piece sum after nothing: add a.x
        transaction subscriber
        piece subscriber: update a.x
        transaction read
        piece read: read a.x, read b.x";
    let instances = [("publisher", None), ("subscriber", None), ("read", None)];
    assert_eq!(accepts(Mutation::ReadsBeforePublication, Options::ALL, program, &instances), FOUND);
}

/// This one is sound, and found by the search for finer choppings.
#[test]
fn merged_in_vain() {
    let program = "
        table a
        table b
        transaction t
        piece first after nothing: update a
        piece second after nothing: add b";
    let options = Options { commutativity: true, ..Options::NONE };
    assert!(is_finest(program, options).is_ok());
    let merged = mutation::with(Mutation::MergedInVain, || is_finest(program, options)).unwrap_err();
    assert!(merged.to_string().contains("is finer than"), "{merged}");
}
