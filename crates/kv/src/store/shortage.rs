//! A report of why memory is full: what holds it, and what would free it.

use std::{
    fmt::{self, Display, Formatter},
    time::Duration,
};

/// An allocation that failed, and what holds the memory. All figures are those of that moment.
///
/// # Example
///
/// ```
/// use drtm_htm::NoHtm;
/// use drtm_kv::{HashConfig, KvError, KvTable, Store};
///
/// let store = Store::in_memory(NoHtm, 1 << 20)?;
/// let (table, mut worker) = (store.hash_table(HashConfig::default())?, store.worker()?);
/// let full = (0..).find_map(|key| table.insert(&mut worker, key, &[7; 500]).err());
/// let Some(KvError::Full(shortage)) = full else { panic!("{full:?}") };
/// assert!(shortage.capacity == 1 << 20 && shortage.left < 8 << 10);
/// assert!(shortage.to_string().starts_with("memory is full: "));
/// # Ok::<(), KvError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shortage {
    /// The requested bytes.
    pub asked: u64,
    /// The bytes that are left, never used so far.
    pub left: u64,
    /// The memory limit, in bytes.
    pub capacity: u64,
    /// The bytes that serve no size, in pieces that are too short.
    pub pieces: u64,
    /// The bytes that will serve any size when the operations have ended that may refer to them.
    /// They serve the size that they had at any time.
    pub waiting: u64,
    /// The bytes that are free, but only for records of other sizes.
    pub other_sizes: u64,
    /// The size of the records that most of these bytes are for, in bytes.
    pub other_size: u64,
    /// The bytes that older versions take, which snapshots read.
    pub older_versions: u64,
    /// How many snapshots are open.
    pub snapshots: u64,
    /// How long the oldest snapshot has been open. `None` if none is, or this is not known.
    pub oldest: Option<Duration>,
}

impl Display for Shortage {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { asked, left, capacity, pieces, waiting, other_sizes, other_size, older_versions, snapshots, oldest } =
            *self;
        write!(f, "memory is full: {asked} bytes were to be had, and {left} are left of {capacity}")?;
        if older_versions > 0 {
            write!(f, "; {older_versions} bytes are older versions of rows, which snapshots read")?;
        }
        if waiting > 0 {
            let what = if snapshots > 0 { "snapshots and transactions" } else { "transactions" };
            write!(f, "; {waiting} bytes will serve rows of any size when {what} have ended that are open")?;
        }
        if snapshots > 0 && older_versions + waiting > 0 {
            let (it, are) = if snapshots == 1 { ("it", "snapshot is") } else { ("them", "snapshots are") };
            write!(f, " ({snapshots} {are} open")?;
            if let Some(oldest) = oldest {
                write!(f, ", the oldest for {:.1} s", oldest.as_secs_f64())?;
            }
            write!(f, ": drop {it})")?;
        }
        if other_sizes > 0 {
            write!(f, "; {other_sizes} bytes are free only for rows of other sizes, most of them for {other_size}")?;
            write!(f, " bytes: compact the memory")?;
        }
        if pieces > 0 {
            write!(f, "; {pieces} bytes are free in pieces that are too short")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_says_what_would_help() {
        let plain = Shortage { asked: 8, left: 1, capacity: 64, ..Shortage::default() };
        assert_eq!(plain.to_string(), "memory is full: 8 bytes were to be had, and 1 are left of 64");
        let (waiting, snapshots, oldest) = (48, 1, Some(Duration::from_millis(3_240)));
        let held = Shortage { waiting, snapshots, oldest, ..plain.clone() };
        assert_eq!(
            held.to_string(),
            format!(
                "{plain}; 48 bytes will serve rows of any size when snapshots and transactions have ended that are \
                 open (1 snapshot is open, the oldest for 3.2 s: drop it)"
            )
        );
        let sizes = Shortage { other_sizes: 32, other_size: 136, ..plain.clone() };
        assert!(sizes.to_string().ends_with("most of them for 136 bytes: compact the memory"), "{sizes}");
    }
}
