//! What visitors have asked a node for: under which ticket, and whether it is ready. See
//! [`gather`](super::gather).

use std::{collections::VecDeque, task::Waker, time::Duration};

use drtm_rdma::Time;

/// How long rows are counted at the most, for a visitor.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// How many statuses are kept for the visitors that have not taken them yet.
const KEPT: usize = 4;

/// What visitors have asked a node for.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    last: u64,
    /// What is gathered at the moment, and until when it takes at the most.
    under_way: Option<(u64, Time)>,
    ready: VecDeque<(u64, Vec<u8>)>,
}

/// What there is under a ticket.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part {
    UnderWay,
    /// So many bytes in all.
    Ready {
        length: usize,
    },
}

impl Gathered {
    /// Begins a gathering, unless one is under way. Returns its ticket, and whether it is new.
    pub(super) fn begin(&mut self, now: Time, within: Duration) -> (u64, bool) {
        if let Some((ticket, until)) = self.under_way
            && now < until
        {
            return (ticket, false);
        }
        self.last += 1;
        // A worker that has ended gathers nothing.
        self.under_way = Some((self.last, now + 2 * within + Duration::from_secs(1)));
        (self.last, true)
    }

    /// Ends a gathering.
    pub(super) fn end(&mut self, ticket: u64, status: Vec<u8>) {
        self.under_way.take_if(|(under_way, _)| *under_way == ticket);
        self.ready.truncate(KEPT - 1);
        self.ready.push_front((ticket, status));
    }

    /// Copies a part of what is under a ticket. `None` if that is not known any more.
    pub(super) fn part(&self, ticket: u64, (from, most): (usize, usize), into: &mut Vec<u8>) -> Option<Part> {
        if self.under_way.is_some_and(|(under_way, _)| under_way == ticket) {
            return Some(Part::UnderWay);
        }
        let (_, bytes) = self.ready.iter().find(|(ready, _)| *ready == ticket)?;
        let part = bytes.get(from..)?;
        into.extend_from_slice(&part[..part.len().min(most)]);
        Some(Part::Ready { length: bytes.len() })
    }
}

/// What a worker is to gather.
#[derive(Debug, Default)]
pub(super) struct ToGather {
    pub(super) next: Option<(u64, Duration)>,
    pub(super) waker: Option<Waker>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitors_share_what_is_under_way_and_take_what_is_ready() {
        let (mut gathered, mut bytes) = (Gathered::default(), Vec::new());
        let (now, within) = (Time::default(), Duration::from_secs(1));
        assert_eq!(gathered.begin(now, within), (1, true));
        assert_eq!(gathered.begin(now, within), (1, false));
        assert_eq!(gathered.part(1, (0, 9), &mut bytes), Some(Part::UnderWay));
        gathered.end(1, vec![1, 2, 3]);
        assert_eq!(gathered.part(1, (0, 2), &mut bytes), Some(Part::Ready { length: 3 }));
        assert_eq!(gathered.part(1, (2, 2), &mut bytes), Some(Part::Ready { length: 3 }));
        assert_eq!(bytes, [1, 2, 3]);
        assert_eq!(gathered.part(1, (4, 2), &mut bytes), None, "behind its end");
        // One whose worker has ended keeps others from nothing.
        assert_eq!(gathered.begin(now, within), (2, true));
        assert_eq!(gathered.begin(now + 3 * within, within), (3, true));
        (2..2 + KEPT as u64).for_each(|ticket| gathered.end(ticket, vec![7]));
        assert_eq!(gathered.part(1, (0, 2), &mut bytes), None, "it was not taken in time");
    }
}
