//! The numbers of unanswered messages.

/// The numbers of an endpoint's unanswered messages.
#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    next: u64,
    open: Vec<u64>,
}

impl Outstanding {
    pub(super) fn open(&mut self) -> u64 {
        self.next += 1;
        self.open.push(self.next);
        self.next
    }

    pub(super) fn close(&mut self, number: u64) {
        if let Some(place) = self.open.iter().position(|open| *open == number) {
            self.open.swap_remove(place);
        }
    }

    /// Returns the least number that is open.
    pub(super) fn floor(&self) -> u64 {
        self.open.iter().copied().min().unwrap_or(self.next + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_least_number_that_is_waited_for() {
        let mut outstanding = Outstanding::default();
        assert_eq!(outstanding.floor(), 1);
        let [one, two, three] = [(); 3].map(|()| outstanding.open());
        assert_eq!([one, two, three, outstanding.floor()], [1, 2, 3, 1]);
        outstanding.close(two);
        assert_eq!(outstanding.floor(), 1);
        outstanding.close(one);
        assert_eq!(outstanding.floor(), 3);
        outstanding.close(three);
        assert_eq!(outstanding.floor(), 4);
    }
}
