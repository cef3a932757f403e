//! The memory accesses of an htm transaction.

use std::time::Duration;

use drtm_htm::LINE_BYTES;

/// What every htm transaction of a run does: touch memory, one word in each line, or spin.
///
/// # Example
///
/// ```
/// use drtm_paper::htm::Load;
///
/// let load = Load::read_then_write(3 << 20, 28 << 10);
/// assert_eq!((load.bytes_read(), load.bytes_written()), (3 << 20, 28 << 10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Load {
    /// Reads some lines and writes others: all reads come before all writes, or after them.
    #[non_exhaustive]
    Touch {
        /// Lines read.
        lines_read: usize,
        /// Lines written.
        lines_written: usize,
        /// Whether the reads come first.
        reads_first: bool,
    },
    /// Spins for this long, and touches nothing.
    Spin(Duration),
}

impl Load {
    /// Reads this many bytes.
    #[must_use]
    pub fn read(bytes: usize) -> Self {
        Self::read_then_write(bytes, 0)
    }

    /// Writes this many bytes.
    #[must_use]
    pub fn write(bytes: usize) -> Self {
        Self::write_then_read(bytes, 0)
    }

    /// Reads, and then writes elsewhere. Sizes are rounded up to whole lines.
    #[must_use]
    pub fn read_then_write(read: usize, written: usize) -> Self {
        Self::Touch {
            lines_read: read.div_ceil(LINE_BYTES),
            lines_written: written.div_ceil(LINE_BYTES),
            reads_first: true,
        }
    }

    /// Writes, and then reads elsewhere. Sizes are rounded up to whole lines.
    #[must_use]
    pub fn write_then_read(written: usize, read: usize) -> Self {
        Self::Touch {
            lines_read: read.div_ceil(LINE_BYTES),
            lines_written: written.div_ceil(LINE_BYTES),
            reads_first: false,
        }
    }

    /// Spins for this long.
    #[must_use]
    pub fn spin(duration: Duration) -> Self {
        Self::Spin(duration)
    }

    /// Returns the bytes in the lines read.
    #[must_use]
    pub fn bytes_read(&self) -> usize {
        match self {
            Self::Touch { lines_read, .. } => lines_read * LINE_BYTES,
            Self::Spin(_) => 0,
        }
    }

    /// Returns the bytes in the lines written.
    #[must_use]
    pub fn bytes_written(&self) -> usize {
        match self {
            Self::Touch { lines_written, .. } => lines_written * LINE_BYTES,
            Self::Spin(_) => 0,
        }
    }

    /// Returns how many transactions give a useful result in reasonable time: many small ones, and
    /// fewer large or long ones.
    #[must_use]
    pub fn default_attempts(&self) -> u64 {
        const ACCESSES: u64 = 1 << 21;
        const TIME: Duration = Duration::from_secs(2);
        let affordable = match self {
            Self::Touch { lines_read, lines_written, .. } => ACCESSES / (lines_read + lines_written).max(1) as u64,
            Self::Spin(duration) => (TIME.as_nanos() / duration.as_nanos().max(1)) as u64,
        };
        affordable.clamp(50, 2000)
    }
}
