//! Random programs: what the analysis accepts is serializable, and what it merges must be merged.

use proptest::{
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

use super::{
    brute_force::{Instance, Verdict, search},
    naive::{self, Pieces},
    random::{Shape, options, parse, programs},
};
use crate::{analysis::Analysis, chopping::Chopping, describe::Kind, options::Options, program::Program};

fn cases(usual: u32) -> Config {
    Config::with_cases(u32::try_from(drtm_testing::rounds(u64::from(usual))).unwrap_or(u32::MAX))
}

/// Returns instances of the `chosen` transactions. A few are aborted.
fn instances(program: &Program, chosen: &[(usize, u8)]) -> Vec<Instance> {
    let instance = |&(transaction, abort): &(usize, u8)| {
        let transaction = transaction % program.transactions.len();
        let pieces = &program.transactions[transaction].pieces;
        let may: Vec<usize> = (0..pieces.len()).filter(|&piece| pieces[piece].may_abort).collect();
        let aborts_in = (abort < 80).then(|| may.get(usize::from(abort) % may.len().max(1)).copied()).flatten();
        Instance { transaction, aborts_in }
    };
    chosen.iter().map(instance).collect()
}

fn chosen() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((0..3_usize, any::<u8>()), 2..=4)
}

fn is_serializable(text: &str, options: Options, chosen: &[(usize, u8)]) -> Result<(), TestCaseError> {
    let program = parse(text);
    let chopping = Chopping::finest(&program, options);
    let verdict = search(&program, &chopping, &instances(&program, chosen));
    prop_assert!(!matches!(verdict, Verdict::Not(_)), "{verdict:?} of\n{text}\n{options:?}\n{chopping}");
    Ok(())
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn what_is_accepted_is_serializable(
        text in programs(Shape { transactions: 3, pieces: 3, alone: 30, access: None }),
        options in options(),
        chosen in chosen(),
    ) {
        is_serializable(&text, options, &chosen)?;
    }

    /// With many additions, so that some are deferred, and many transactions that only read.
    #[test]
    fn deferred_additions_and_two_round_reads_are_serializable(
        text in programs(Shape { transactions: 4, pieces: 2, alone: 30, access: Some(&["read", "add", "update"]) }),
        chosen in chosen(),
    ) {
        is_serializable(&text, Options::ALL, &chosen)?;
    }

    /// With many claims.
    #[test]
    fn claims_are_serializable(
        text in programs(Shape { transactions: 3, pieces: 3, alone: 10, access: Some(&["insert", "remove", "update"]) }),
        chosen in chosen(),
    ) {
        is_serializable(&text, Options::ALL, &chosen)?;
    }

    /// Any chopping that is not refused is as good as the finest.
    #[test]
    fn what_is_insisted_on_is_serializable_or_refused(
        text in programs(Shape { transactions: 3, pieces: 3, alone: 60, access: None }),
        options in options(),
        turns in prop::collection::vec(0..3_usize, 9),
        chosen in chosen(),
    ) {
        let program = parse(&text);
        let groups = |transaction: usize| -> Vec<Vec<&str>> {
            let pieces = program.transactions[transaction].pieces.iter().enumerate();
            let turn = |piece: usize| turns[3 * transaction + piece];
            let of = |wanted: usize| pieces.clone().filter(move |(piece, _)| turn(*piece) == wanted);
            (0..3).map(|wanted| of(wanted).map(|(_, piece)| piece.name.as_str()).collect()).collect()
        };
        // One at a time: others are as fine as they can be.
        for (transaction, known) in program.transactions.iter().enumerate() {
            let groups = groups(transaction);
            let wanted: Vec<&[&str]> = groups.iter().map(Vec::as_slice).collect();
            if let Ok(chopping) = Chopping::insist(&program, options, &[(&known.name, &wanted)]) {
                let verdict = search(&program, &chopping, &instances(&program, &chosen));
                prop_assert!(!matches!(verdict, Verdict::Not(_)), "{verdict:?} of\n{text}\n{options:?}\n{chopping}");
            }
        }
    }

    /// The finest chopping has no SC-cycle. Any finer one has one, or breaks the order that pieces
    /// depend on, or may abort after an effect.
    #[test]
    fn what_is_merged_must_be_merged(
        text in programs(Shape { transactions: 3, pieces: 4, alone: 50, access: None }),
        options in options(),
    ) {
        is_finest(&text, options)?;
    }
}

/// Checks that a program's finest chopping has no SC-cycle, and that no finer one is possible.
pub(super) fn is_finest(text: &str, options: Options) -> Result<(), TestCaseError> {
    // Claims, two-round reads and publications are more than a graph of pieces.
    let options = Options { claims: false, two_rounds: false, deferral: false, ..options };
    let program = parse(text);
    let chopping = Chopping::finest(&program, options);
    let of = |chopped: &crate::Chopped| -> Vec<Vec<usize>> {
        chopped.pieces().iter().map(|piece| piece.members().iter().map(|member| member.piece).collect()).collect()
    };
    let finest: Pieces = chopping.transactions().iter().map(of).collect();
    prop_assert!(!naive::has_cycle(&program, options, &finest), "an SC-cycle in\n{chopping}");
    for (transaction, pieces) in finest.iter().enumerate() {
        prop_assert!(is_allowed(&program, options, transaction, pieces), "not allowed: {pieces:?} of\n{text}");
        for finer in split(pieces) {
            let mut all = finest.clone();
            all[transaction].clone_from(&finer);
            if naive::has_cycle(&program, options, &all) {
                continue;
            }
            let mut finer = finer;
            let mut possible = None;
            permute(&mut finer, 0, &mut |order| {
                if is_allowed(&program, options, transaction, order) {
                    possible = Some(order.to_vec());
                }
            });
            prop_assert!(possible.is_none(), "{possible:?} of t{transaction} is finer than\n{chopping}");
        }
    }
    Ok(())
}

/// Returns all choppings with one piece more.
fn split(pieces: &[Vec<usize>]) -> Vec<Vec<Vec<usize>>> {
    let mut finer = Vec::new();
    for (place, members) in pieces.iter().enumerate() {
        // The first member stays, so that each two parts come once.
        for chosen in 1..(1_usize << members.len().saturating_sub(1)) {
            let is_chosen = |nth: usize| nth > 0 && chosen & (1 << (nth - 1)) != 0;
            let part = |wanted: bool| -> Vec<usize> {
                members
                    .iter()
                    .enumerate()
                    .filter(|(nth, _)| is_chosen(*nth) == wanted)
                    .map(|(_, member)| *member)
                    .collect()
            };
            let mut parts = pieces.to_vec();
            parts[place] = part(false);
            parts.insert(place + 1, part(true));
            finer.push(parts);
        }
    }
    finer
}

/// Returns whether pieces can run in this order, apart from what other transactions see.
fn is_allowed(program: &Program, options: Options, transaction: usize, pieces: &[Vec<usize>]) -> bool {
    let known = &program.transactions[transaction].pieces;
    let turn = |piece: usize| pieces.iter().position(|members| members.contains(&piece));
    let has_effect =
        |piece: usize| known[piece].accesses.iter().any(|access| !matches!(access.kind, Kind::Read | Kind::Search));
    for after in 0..known.len() {
        for before in 0..after {
            let conflict = known[before]
                .accesses
                .iter()
                .any(|one| known[after].accesses.iter().any(|other| naive::conflict(options, one, other)));
            let stays = !options.reordering || conflict || known[after].after.contains(&before);
            if stays && turn(before) > turn(after) {
                return false;
            }
        }
        if known[after].may_abort && (0..known.len()).any(|piece| has_effect(piece) && turn(piece) < turn(after)) {
            return false;
        }
    }
    true
}

fn permute<T>(order: &mut [T], from: usize, visit: &mut impl FnMut(&[T])) {
    if from >= order.len() {
        return visit(order);
    }
    for place in from..order.len() {
        order.swap(from, place);
        permute(order, from + 1, visit);
        order.swap(from, place);
    }
}

/// The analysis is conservative: not every SC-cycle is one of an execution. Most are.
#[test]
fn most_pieces_that_are_merged_could_not_run_apart() {
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let programs = programs(Shape { transactions: 2, pieces: 3, alone: 20, access: None });
    let (mut splits, mut shown) = (0, 0);
    for _ in 0..300 {
        let text = programs.new_tree(&mut runner).expect("a program").current();
        let program = parse(&text);
        let analysis = Analysis::new(&program, Options::ALL);
        for transaction in (0..program.transactions.len()).filter(|&place| !analysis.is_read[place]) {
            let (finest, _) = analysis.finest(transaction);
            for finer in split(&finest) {
                if !is_allowed(&program, Options::ALL, transaction, &finer) {
                    continue;
                }
                splits += 1;
                let chopping = Chopping::new(&analysis, Options::ALL, &[(transaction, finer)]);
                let other = program.transactions.len() - 1 - transaction;
                let sets = [vec![transaction, transaction], vec![transaction, other, other, transaction]];
                let fails = |set: &Vec<usize>| {
                    let instance = |&transaction: &usize| Instance { transaction, aborts_in: None };
                    let instances: Vec<_> = set.iter().map(instance).collect();
                    matches!(search(&program, &chopping, &instances), Verdict::Not(_))
                };
                shown += usize::from(sets.iter().any(fails));
            }
        }
    }
    assert!(splits > 100 && shown * 2 > splits, "{shown} of {splits}");
}
