//! Which nodes back up which owner, and where transactions are recorded.

use crate::{Error, cluster::ClusterError};

/// How large a ring is unless the builder is told.
const RING_BYTES: u64 = 1 << 18;

/// The smallest and the largest ring.
const LEAST: u64 = 1 << 10;
const MOST: u64 = 1 << 30;

/// How many backups each owner has, and how large rings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct LogConfig {
    pub(in crate::cluster) backups: usize,
    /// At how many nodes rows of a shard are recorded, beside the coordinator. None: a transaction
    /// of a node that dies is neither completed nor undone.
    pub(in crate::cluster) copies: usize,
    pub(in crate::cluster) ring_bytes: u64,
    /// How many bytes of rows a node copies in a second at most, to become a backup.
    pub(in crate::cluster) copy_rate: Option<u64>,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { backups: 0, copies: 0, ring_bytes: RING_BYTES, copy_rate: None }
    }
}

impl LogConfig {
    /// Sets the size of rings: at least so many bytes.
    pub(in crate::cluster) fn with_rings_of(self, bytes: u64) -> Result<Self, Error> {
        if !(LEAST..=MOST).contains(&bytes) {
            let (must_be, is) = ("from 1 KiB to 1 GiB", format!("{bytes} bytes"));
            return Err(Error::Config { what: "the size of a ring", must_be, is });
        }
        Ok(Self { ring_bytes: bytes.next_power_of_two(), ..self })
    }

    /// Records transactions at as many nodes as there are backups; without backups at primaries, if
    /// the view is to go on without nodes that die.
    pub(in crate::cluster) fn recorded(self, is_recoverable: bool) -> Self {
        Self { copies: self.backups.max(is_recoverable.into()), ..self }
    }

    /// Checks that there are as many other owners as each is to have backups.
    pub(in crate::cluster) fn check(&self, owners: usize) -> Result<(), ClusterError> {
        match self.backups {
            backups if backups < owners || backups == 0 => Ok(()),
            backups => Err(ClusterError::TooManyBackups { backups, owners }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_fewer_backups_than_there_are_owners() {
        let config = LogConfig { backups: 2, ..LogConfig::default() };
        assert!(config.check(3).is_ok() && config.check(2).is_err());
        assert!(LogConfig::default().check(1).is_ok());
    }

    #[test]
    fn without_backups_primaries_have_records_where_they_are_needed() {
        let copies =
            |backups, is_recoverable| LogConfig { backups, ..LogConfig::default() }.recorded(is_recoverable).copies;
        assert_eq!([copies(0, false), copies(0, true), copies(1, true), copies(2, false)], [0, 1, 1, 2]);
    }

    #[test]
    fn rings_have_sizes_that_wrap() {
        let size = |bytes| LogConfig::default().with_rings_of(bytes).map(|config| config.ring_bytes);
        assert_eq!(size(5_000).expect("a size"), 8_192);
        assert!(matches!(size(0), Err(Error::Config { .. })));
        assert!(matches!(size(1 << 40), Err(Error::Config { .. })));
    }
}
