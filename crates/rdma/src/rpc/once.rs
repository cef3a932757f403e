//! At-most-once execution where messages may arrive twice: answers are kept while the caller may
//! repeat its request.
//!
//! A caller numbers its messages, and sends with each the least number that it still waits for.
//! Below that floor nothing is carried out and no answer is kept. So there are as many answers here
//! for a caller as it has unanswered calls.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::endpoint::port::ReplyTo;

/// What to do with a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// It is new: carry it out.
    New,
    /// It was answered before: send that answer again.
    Answered,
    /// Another worker is carrying it out, or the caller no longer waits for it.
    Stale,
}

/// The answers of a node's workers, kept while their callers may repeat the requests.
///
/// All serving workers of a node share one. If the fabric delivers messages once, it is never used,
/// and costs nothing.
///
/// # Example
///
/// See the [module](super).
#[derive(Debug, Default)]
pub struct Once {
    callers: Mutex<BTreeMap<Caller, Memory>>,
}

/// An endpoint, in one of its lives, of an incarnation of a node.
type Caller = (u16, u32, u16, u32);

#[derive(Debug, Default)]
struct Memory {
    floor: u64,
    /// The answers by number. `None` while the message is being carried out.
    answers: BTreeMap<u64, Option<Vec<u8>>>,
}

fn caller(to: &ReplyTo) -> Caller {
    (to.node.0, to.incarnation.0, to.endpoint, to.life)
}

impl Once {
    /// Takes a message. An existing answer is copied to `reply`.
    pub(super) fn begin(&self, from: &ReplyTo, number: u64, floor: u64, reply: &mut Vec<u8>) -> Seen {
        let mut callers = self.callers.lock();
        let key = caller(from);
        if !callers.contains_key(&key) {
            // Requests of earlier incarnations of its node are never repeated.
            callers.retain(|(node, incarnation, ..), _| *node != key.0 || *incarnation >= key.1);
        }
        let memory = callers.entry(key).or_default();
        if floor > memory.floor {
            memory.floor = floor;
            memory.answers = memory.answers.split_off(&floor);
        }
        if number < memory.floor {
            return Seen::Stale;
        }
        match memory.answers.get(&number) {
            None => {
                memory.answers.insert(number, None);
                Seen::New
            }
            Some(None) => Seen::Stale,
            Some(Some(answer)) => {
                reply.clear();
                reply.extend_from_slice(answer);
                Seen::Answered
            }
        }
    }

    /// Stores the answer to a message.
    pub(super) fn end(&self, from: &ReplyTo, number: u64, reply: &[u8]) {
        let mut callers = self.callers.lock();
        let answer = callers.get_mut(&caller(from)).and_then(|memory| memory.answers.get_mut(&number));
        // Otherwise the caller has stopped waiting meanwhile.
        if let Some(answer) = answer {
            *answer = Some(reply.to_vec());
        }
    }

    /// Returns the number of answers that are kept.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.callers.lock().values().map(|memory| memory.answers.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Incarnation, NodeId, endpoint::port::Ticket};

    fn from(incarnation: u32) -> ReplyTo {
        let ticket = Ticket { index: 0, generation: 0 };
        ReplyTo { node: NodeId(1), incarnation: Incarnation(incarnation), endpoint: 0, life: 0, ticket }
    }

    #[test]
    fn what_was_answered_is_answered_again_until_it_is_not_waited_for() {
        let (once, mut reply) = (Once::default(), Vec::new());
        assert_eq!(once.begin(&from(1), 1, 1, &mut reply), Seen::New);
        assert_eq!(once.begin(&from(1), 1, 1, &mut reply), Seen::Stale, "another worker is at it");
        once.end(&from(1), 1, b"one");
        assert_eq!(once.begin(&from(1), 1, 1, &mut reply), Seen::Answered);
        assert_eq!(reply, b"one");
        assert_eq!(once.begin(&from(1), 2, 2, &mut reply), Seen::New);
        assert_eq!(once.begin(&from(1), 1, 1, &mut reply), Seen::Stale, "late");
        assert_eq!(once.remembered(), 1);
        // Another incarnation numbers anew, and the answers to the old one are dropped.
        assert_eq!(once.begin(&from(2), 1, 1, &mut reply), Seen::New);
        assert_eq!(once.remembered(), 1);
    }

    proptest! {
        /// Messages arrive in any order, each any number of times: each is carried out at most
        /// once.
        #[test]
        fn nothing_is_carried_out_twice(arrivals in prop::collection::vec((1..20_u64, 0..5_u64), 0..200)) {
            let (once, mut reply) = (Once::default(), Vec::new());
            let mut carried_out = [0; 20];
            for (number, open) in arrivals {
                if once.begin(&from(1), number, number.saturating_sub(open), &mut reply) == Seen::New {
                    carried_out[number as usize] += 1;
                    once.end(&from(1), number, &number.to_le_bytes());
                }
            }
            prop_assert!(carried_out.iter().all(|times| *times <= 1));
            prop_assert!(once.remembered() <= 6);
        }
    }
}
