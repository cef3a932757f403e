//! Judges histories of a register with numbers: whether they are linearizable.
//!
//! Numbers only rise, and each is given to one content. So a history is linearizable exactly if
//! each number can be given a moment at which it came into force, in the order of numbers, such
//! that each request sees what is in force at a moment between its start and its end. What a
//! request says bounds these moments: one that read number `n` started before `n + 1` came into
//! force, and ended after `n` did. Bounds that do not contradict each other can all be met.

use std::collections::BTreeMap;

use drtm_membership::{Configuration, Error};

/// What is expected and what is proposed. `None`: to read.
pub(crate) type Proposal = Option<(u32, Vec<u8>)>;

/// A request and its outcome. Times are of one clock.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Operation {
    pub(crate) client: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) proposal: Proposal,
    pub(crate) outcome: Result<Configuration, Error>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    pub(crate) operations: Vec<Operation>,
    /// What each watcher was told, and when.
    pub(crate) watched: Vec<Vec<(u64, Configuration)>>,
}

/// What a history had in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) reads: usize,
    pub(crate) replaced: usize,
    pub(crate) outdated: usize,
    pub(crate) unknown: usize,
    pub(crate) unavailable: usize,
    /// The highest number that was seen.
    pub(crate) highest: u32,
}

#[derive(Default)]
struct Judge {
    contents: BTreeMap<u32, Vec<u8>>,
    /// When a number came into force, at the earliest.
    earliest: BTreeMap<u32, u64>,
    /// And at the latest.
    latest: BTreeMap<u32, u64>,
}

impl Judge {
    /// A configuration was in force at some moment of these.
    fn sees(&mut self, start: u64, end: u64, seen: &Configuration) -> Result<(), String> {
        self.tells(end, seen)?;
        self.not_before(seen.number() + 1, start);
        Ok(())
    }

    /// A configuration has come into force until now.
    fn tells(&mut self, at: u64, seen: &Configuration) -> Result<(), String> {
        let content = self.contents.entry(seen.number()).or_insert_with(|| seen.content().to_vec());
        if content != seen.content() {
            return Err(format!("number {} has two contents", seen.number()));
        }
        let latest = self.latest.entry(seen.number()).or_insert(at);
        *latest = at.min(*latest);
        Ok(())
    }

    fn not_before(&mut self, number: u32, moment: u64) {
        let earliest = self.earliest.entry(number).or_insert(moment);
        *earliest = moment.max(*earliest);
    }
}

impl History {
    /// Judges the history of a register that had no configuration at first.
    pub(crate) fn judge(&self) -> Result<Summary, String> {
        let (mut judge, mut summary) = (Judge::default(), Summary::default());
        judge.contents.insert(0, Vec::new());
        let mut claimed = BTreeMap::new();
        for operation in &self.operations {
            let Operation { start, end, proposal, outcome, .. } = operation;
            match (proposal, outcome) {
                (None, Ok(read)) => {
                    judge.sees(*start, *end, read)?;
                    summary.reads += 1;
                }
                (Some((expected, content)), Ok(new)) => {
                    if new.number() != expected + 1 || new.content() != content {
                        return Err(format!("{new:?} is the answer to {operation:?}"));
                    }
                    if let Some(other) = claimed.insert(new.number(), operation) {
                        return Err(format!("both {other:?} and {operation:?} are said to have happened"));
                    }
                    judge.tells(*end, new)?;
                    summary.replaced += 1;
                }
                (Some((expected, _)), Err(Error::Outdated { current })) => {
                    if current.number() == *expected {
                        return Err(format!("refused although it is expected: {operation:?}"));
                    }
                    judge.sees(*start, *end, current)?;
                    summary.outdated += 1;
                }
                (Some(_), Err(error)) if error.may_have_happened() => summary.unknown += 1,
                (None, Err(error)) if error.may_have_happened() => {
                    return Err(format!("a read cannot have happened: {operation:?}"));
                }
                (_, Err(_)) => summary.unavailable += 1,
            }
        }
        for told in &self.watched {
            let mut before = 0;
            for (at, configuration) in told {
                if configuration.number() <= before {
                    return Err(format!("a watch goes back from number {before} to {}", configuration.number()));
                }
                before = configuration.number();
                judge.tells(*at, configuration)?;
            }
        }
        self.trace_to_proposals(&mut judge)?;
        summary.highest = *judge.contents.keys().max().unwrap_or(&0);
        let (mut earliest, mut by) = (0, 0);
        for number in 1..=summary.highest + 1 {
            if let Some(moment) = judge.earliest.get(&number).filter(|moment| **moment > earliest) {
                (earliest, by) = (*moment, number);
            }
            if let Some(latest) = judge.latest.get(&number).filter(|latest| **latest < earliest) {
                return Err(format!("number {number} is seen at {latest}, and {by} is not in force at {earliest}"));
            }
        }
        Ok(summary)
    }

    /// Each configuration comes from a proposal that has not failed.
    fn trace_to_proposals(&self, judge: &mut Judge) -> Result<(), String> {
        for (number, content) in judge.contents.clone() {
            if number == 0 {
                continue;
            }
            let is_its = |operation: &&Operation| {
                operation
                    .proposal
                    .as_ref()
                    .is_some_and(|(expected, proposed)| expected + 1 == number && *proposed == content)
            };
            let Some(operation) = self.operations.iter().find(is_its) else {
                return Err(format!("nothing proposed number {number}: {}", content.escape_ascii()));
            };
            match &operation.outcome {
                Ok(_) => {}
                Err(error) if error.may_have_happened() => {}
                Err(_) => return Err(format!("number {number} is in force although it failed: {operation:?}")),
            }
            judge.not_before(number, operation.start);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u32, content: &[u8]) -> Configuration {
        Configuration::new(number, content)
    }

    fn operation(
        times: (u64, u64),
        proposal: Option<(u32, &[u8])>,
        outcome: Result<Configuration, Error>,
    ) -> Operation {
        let proposal = proposal.map(|(expected, content)| (expected, content.to_vec()));
        Operation { client: 0, start: times.0, end: times.1, proposal, outcome }
    }

    fn judged(operations: Vec<Operation>) -> Result<Summary, String> {
        History { operations, watched: Vec::new() }.judge()
    }

    #[test]
    fn good_histories_are_good() {
        let unknown = Err(Error::Unknown { why: String::new() });
        let good = vec![
            operation((0, 9), Some((0, b"a")), unknown.clone()),
            operation((1, 2), None, Ok(of(0, b""))),
            operation((3, 4), None, Ok(of(1, b"a"))),
            operation((5, 8), Some((1, b"b")), Ok(of(2, b"b"))),
            operation((6, 7), None, Ok(of(2, b"b"))),
            operation((9, 10), Some((1, b"c")), Err(Error::Outdated { current: of(2, b"b") })),
            operation((9, 10), Some((2, b"d")), unknown),
        ];
        let summary = judged(good).expect("it is linearizable");
        assert_eq!((summary.reads, summary.replaced, summary.unknown, summary.highest), (3, 1, 2, 2));
    }

    #[test]
    fn bad_histories_are_bad() {
        let replaced = operation((1, 2), Some((0, b"a")), Ok(of(1, b"a")));
        let stale = operation((3, 4), None, Ok(of(0, b"")));
        assert!(judged(vec![replaced.clone(), stale]).is_err(), "a stale read");
        let early = operation((0, 0), None, Ok(of(1, b"a")));
        assert!(judged(vec![replaced.clone(), early]).is_err(), "a read of the future");
        let second = operation((1, 2), Some((0, b"a")), Ok(of(1, b"a")));
        assert!(judged(vec![replaced.clone(), second]).is_err(), "two claim a number");
        let other = operation((3, 4), None, Ok(of(1, b"b")));
        assert!(judged(vec![replaced.clone(), other]).is_err(), "two contents");
        let unavailable = Err(Error::Unavailable { why: String::new() });
        let denied = operation((1, 2), Some((0, b"b")), unavailable);
        let seen = operation((3, 4), None, Ok(of(1, b"b")));
        assert!(judged(vec![denied, seen.clone()]).is_err(), "it was said not to happen");
        assert!(judged(vec![seen]).is_err(), "nobody proposed it");
        let watched = vec![vec![(5, of(1, b"a")), (6, of(1, b"a"))]];
        assert!(History { operations: vec![replaced], watched }.judge().is_err(), "a watch that goes back");
    }
}
