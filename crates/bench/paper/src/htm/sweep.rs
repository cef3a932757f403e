//! The default sizes of a sweep, and their loads.

use clap::ValueEnum;
use drtm_report::units::{KIB as K, sizes};
use serde::Serialize;

use super::Load;

/// Sizes around and beyond any first-level cache.
const WRITES: [usize; 20] = sizes([1, 2, 4, 6, 8, 12, 16, 20, 22, 24, 28, 31, 32, 33, 36, 44, 48, 49, 56, 64], K);

/// Sizes from the capacity of such a cache to beyond any read tracker.
const READS: [usize; 10] = sizes([64, 128, 256, 512, 1024, 2048, 3072, 4096, 5120, 8192], K);

/// Fewer sizes, for the grid of both.
const WRITES_OF_GRID: [usize; 5] = sizes([4, 16, 28, 32, 36], K);
const READS_OF_GRID: [usize; 8] = sizes([2, 4, 8, 16, 32, 64, 1024, 4096], K);

/// The kind of memory accesses, named as on the command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Only read
    Read,
    /// Only write
    #[default]
    Write,
    /// All reads before any write
    ReadWrite,
    /// All writes before any read
    WriteRead,
}

impl Kind {
    pub(super) fn reads(self) -> bool {
        self != Self::Write
    }

    pub(super) fn writes(self) -> bool {
        self != Self::Read
    }

    /// Returns a load for every size, or for every pair of sizes. `None` stands for the default
    /// sizes.
    pub(super) fn loads(self, read: Option<&[usize]>, written: Option<&[usize]>) -> Vec<Load> {
        let all = |load: fn(usize) -> Load, sizes: &[usize]| sizes.iter().map(|&size| load(size)).collect();
        let grid = |load: fn(usize, usize) -> Load| {
            let (read, written) = (read.unwrap_or(&READS_OF_GRID), written.unwrap_or(&WRITES_OF_GRID));
            written.iter().flat_map(|&written| read.iter().map(move |&read| load(read, written))).collect()
        };
        match self {
            Self::Read => all(Load::read, read.unwrap_or(&READS)),
            Self::Write => all(Load::write, written.unwrap_or(&WRITES)),
            Self::ReadWrite => grid(Load::read_then_write),
            Self::WriteRead => grid(|read, written| Load::write_then_read(written, read)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_sizes_replace_the_default_ones_each_on_its_own_side() {
        assert_eq!(Kind::Read.loads(Some(&[64, 128]), None), [Load::read(64), Load::read(128)]);
        assert_eq!(Kind::Write.loads(None, None).len(), WRITES.len());
        let grid = Kind::WriteRead.loads(Some(&[64]), None);
        assert_eq!(grid.len(), WRITES_OF_GRID.len());
        assert_eq!(grid[0], Load::write_then_read(4 * K, 64));
    }
}
