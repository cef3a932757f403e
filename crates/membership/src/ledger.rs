//! The one decision of every engine that decides by itself: whether a proposal becomes the next
//! configuration. A pure function of the proposals, in their order.
//!
//! A request may arrive twice, because a message was repeated or because it was sent again when
//! no answer came. So each has a name, and the ledger remembers which request each of the last
//! configurations came from: a repeated request gets the answer that the first one got.
//!
//! Two requests have no certain answer. Of one whose configuration would be older than these, the
//! ledger cannot tell whether it is a repeated one. One that expects a number which is not there
//! yet does nothing, but may arrive again when it is.

use std::collections::VecDeque;

use crate::{
    configuration::{Configuration, MOST_BYTES},
    error::Error,
    mutation::Mutation,
};

/// Configurations whose requests are remembered.
const REMEMBERED: usize = 64;

/// The name of a request: what made it, and the how manieth of its requests it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "raft", derive(serde::Serialize, serde::Deserialize))]
pub(crate) struct RequestName {
    pub(crate) author: u64,
    pub(crate) request: u64,
}

/// What has come of a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// It is the next configuration, or was it when it came for the first time.
    Replaced(Configuration),
    /// Another configuration than the expected one is in force.
    Outdated(Configuration),
    /// Whether it has happened, or will, cannot be told.
    Unclear,
}

/// The configuration in force, and the requests that the last ones came from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    number: u32,
    content: Vec<u8>,
    /// Of the last configurations, the newest at the end.
    names: VecDeque<RequestName>,
    fault: Option<Mutation>,
}

impl Ledger {
    pub(crate) fn new(fault: Option<Mutation>) -> Self {
        Self { fault, ..Self::default() }
    }

    pub(crate) fn current(&self) -> Configuration {
        Configuration::new(self.number, &*self.content)
    }

    /// Returns the parts of which a ledger is made [again](Self::restored).
    #[cfg(any(test, feature = "raft"))]
    pub(crate) fn parts(&self) -> (u32, &[u8], impl Iterator<Item = RequestName>) {
        (self.number, &self.content, self.names.iter().copied())
    }

    /// Makes a ledger again.
    #[cfg(any(test, feature = "raft"))]
    pub(crate) fn restored(number: u32, content: Vec<u8>, names: Vec<RequestName>, fault: Option<Mutation>) -> Self {
        Self { number, content, names: names.into(), fault }
    }

    pub(crate) fn replace(&mut self, name: RequestName, expected: u32, content: &[u8]) -> Decision {
        if expected != self.number && self.fault != Some(Mutation::OldNumberAccepted) {
            return self.decided(name, expected, content);
        }
        let Some(next) = self.number.checked_add(1) else { return Decision::Outdated(self.current()) };
        self.number = next;
        content.clone_into(&mut self.content);
        if self.names.len() == REMEMBERED {
            self.names.pop_front();
        }
        self.names.push_back(name);
        Decision::Replaced(self.current())
    }

    /// Decides on a proposal that is not the next configuration: whether it was.
    fn decided(&self, name: RequestName, expected: u32, content: &[u8]) -> Decision {
        if self.fault == Some(Mutation::RepeatsForgotten) {
            return Decision::Outdated(self.current());
        }
        if expected > self.number {
            return Decision::Unclear;
        }
        // 1 for the newest.
        let age = (self.number - expected) as usize;
        match self.names.len().checked_sub(age) {
            Some(at) if self.names[at] == name => Decision::Replaced(Configuration::new(expected + 1, content)),
            Some(_) => Decision::Outdated(self.current()),
            None => Decision::Unclear,
        }
    }
}

/// Returns the number that a configuration will have.
pub(crate) fn next_number(expected: u32, content: &[u8]) -> Result<u32, Error> {
    if content.len() > MOST_BYTES {
        return Err(Error::TooLarge { bytes: content.len() });
    }
    expected.checked_add(1).ok_or(Error::NoNumber)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(request: u64) -> RequestName {
        RequestName { author: 1, request }
    }

    #[test]
    fn the_expected_configuration_is_replaced_and_no_other() {
        let mut ledger = Ledger::new(None);
        assert_eq!(ledger.replace(name(1), 0, b"a"), Decision::Replaced(Configuration::new(1, *b"a")));
        assert_eq!(ledger.replace(name(2), 0, b"b"), Decision::Outdated(Configuration::new(1, *b"a")));
        assert_eq!(ledger.replace(name(2), 2, b"b"), Decision::Unclear);
        assert_eq!(ledger.replace(name(3), 1, b"c"), Decision::Replaced(Configuration::new(2, *b"c")));
    }

    #[test]
    fn a_repeated_request_gets_its_answer_again_or_none() {
        let mut ledger = Ledger::new(None);
        for number in 0..100 {
            let first = ledger.replace(name(number), number as u32, &number.to_le_bytes());
            for again in 0..=number {
                let repeated = ledger.replace(name(again), again as u32, &again.to_le_bytes());
                if number - again < REMEMBERED as u64 {
                    assert_eq!(repeated, Decision::Replaced(Configuration::new(again as u32 + 1, again.to_le_bytes())));
                } else {
                    assert_eq!(repeated, Decision::Unclear);
                }
            }
            assert_eq!(first, ledger.replace(name(number), number as u32, &number.to_le_bytes()));
        }
        let (number, content, names) = ledger.parts();
        let restored = Ledger::restored(number, content.to_vec(), names.collect(), None);
        assert_eq!(restored.current(), ledger.current());
        assert!(restored.names == ledger.names);
    }

    #[test]
    fn limits_are_told() {
        assert_eq!(next_number(u32::MAX, b""), Err(Error::NoNumber));
        assert_eq!(next_number(0, &vec![0; MOST_BYTES + 1]), Err(Error::TooLarge { bytes: MOST_BYTES + 1 }));
        assert_eq!(next_number(0, &vec![0; MOST_BYTES]), Ok(1));
    }
}
