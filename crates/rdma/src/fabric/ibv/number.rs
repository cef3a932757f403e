//! The numbers of requests.

/// The number of a completion: which queue, in which of its connections, and which request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) queue: u16,
    pub(super) connection: u16,
    pub(super) request: u32,
}

impl Number {
    pub(super) fn encode(self) -> u64 {
        u64::from(self.queue) << 48 | u64::from(self.connection) << 32 | u64::from(self.request)
    }

    pub(super) fn decode(id: u64) -> Self {
        Self { queue: (id >> 48) as u16, connection: (id >> 32) as u16, request: id as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_they_were() {
        for number in [
            Number { queue: 0, connection: 0, request: 0 },
            Number { queue: 1023, connection: u16::MAX, request: 7 },
            Number { queue: 5, connection: 9, request: u32::MAX },
        ] {
            assert_eq!(Number::decode(number.encode()), number);
        }
    }
}
