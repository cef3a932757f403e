//! Parses and formats sizes, times and rates.

use drtm_htm::LINE_BYTES;

/// Bytes of a KiB.
pub const KIB: usize = 1 << 10;
/// Bytes of a MiB.
pub const MIB: usize = 1 << 20;

/// The quantity of an axis or a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A size.
    Bytes,
    /// A time.
    Microseconds,
    /// A short time.
    Nanoseconds,
    /// The share of attempts that aborted.
    AbortRate,
    /// A number of threads.
    Threads,
    /// A number of coroutines.
    Coroutines,
    /// A number of nodes.
    Nodes,
    /// A share, in percent.
    Percent,
    /// A mean of bytes.
    MeanBytes,
    /// The share of transactions that ran under a lock.
    LockRate,
    /// Transactions per second.
    Throughput,
    /// Single operations per second.
    Operations,
    /// A ratio of two measured values.
    Ratio,
    /// Pieces of a transaction.
    Pieces,
    /// A number of cache lines.
    Lines,
    /// The share of false positives, in percent.
    FalsePositives,
    /// A size in KB, with a fraction.
    Kilobytes,
    /// A number of bits.
    Bits,
    /// A mean of READs.
    Reads,
}

impl Quantity {
    /// Returns the unit of a bare number, for scripts.
    pub fn unit(self) -> &'static str {
        match self {
            Self::Bytes | Self::MeanBytes => "bytes",
            Self::LockRate => "fallbacks/transactions",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
            Self::AbortRate => "aborts/attempts",
            Self::Threads => "threads",
            Self::Coroutines => "coroutines",
            Self::Nodes => "nodes",
            Self::Percent => "%",
            Self::Throughput => "transactions/s",
            Self::Operations => "operations/s",
            Self::Ratio => "ratio",
            Self::Pieces => "pieces",
            Self::Lines => "lines",
            Self::FalsePositives => "%",
            Self::Kilobytes => "KB",
            Self::Bits => "bits",
            Self::Reads => "READs",
        }
    }

    /// Returns whether [`briefly`](Self::briefly) and [`precisely`](Self::precisely) show the unit,
    /// or there is none.
    pub fn shows_unit(self) -> bool {
        matches!(
            self,
            Self::Bytes | Self::Microseconds | Self::Nanoseconds | Self::Percent | Self::FalsePositives | Self::Ratio
        )
    }

    /// Formats the value in four digits, a ratio in three: beside an axis or a bar.
    pub fn briefly(self, value: f64) -> String {
        self.format(value, brief)
    }

    /// Like [`briefly`](Self::briefly), but with all digits of a whole number: in a table.
    pub fn precisely(self, value: f64) -> String {
        self.format(value, grouped)
    }

    fn format(self, value: f64, number: fn(f64) -> String) -> String {
        match self {
            Self::Bytes if value >= 1.0 => self.show(value),
            Self::Microseconds => self.show(value),
            Self::Nanoseconds => format!("{} ns", number(value)),
            Self::Percent | Self::FalsePositives => format!("{} %", number(value)),
            Self::Ratio if value.abs() < 999.5 => digits(value, 3),
            _ => number(value),
        }
    }

    /// Formats the value with its unit, as short as possible without rounding (rates excepted).
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Bytes => bytes(value as usize),
            Self::Microseconds => microseconds(value),
            Self::Nanoseconds => format!("{value:.0} ns"),
            Self::AbortRate => format!("{value:.3}"),
            Self::LockRate => format!("{value:.4}"),
            Self::Threads
            | Self::Coroutines
            | Self::Nodes
            | Self::Percent
            | Self::Throughput
            | Self::Operations
            | Self::Pieces
            | Self::Lines
            | Self::Bits
            | Self::MeanBytes => {
                format!("{value:.0}")
            }
            Self::Ratio => format!("{value:.2}"),
            Self::FalsePositives | Self::Reads => format!("{value:.3}"),
            Self::Kilobytes => format!("{value:.1}"),
        }
    }
}

/// Multiplies counts by a unit.
pub const fn sizes<const N: usize>(counts: [usize; N], unit: usize) -> [usize; N] {
    let mut sizes = counts;
    let mut at = 0;
    while at < N {
        sizes[at] *= unit;
        at += 1;
    }
    sizes
}

/// Formats bytes in the largest unit that leaves no fraction: `31 KB`, `3 MB`, `768 B`.
pub fn bytes(bytes: usize) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes.is_multiple_of(MIB) => format!("{} MB", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{} KB", bytes / KIB),
        _ => format!("{bytes} B"),
    }
}

/// Formats a number in four digits: `1.008`, `442.2k`, `3.26M`.
pub fn brief(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 999_950.0 => (value / 1e6, "M"),
        size if size >= 9_999.5 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    format!("{}{unit}", digits(scaled, 4))
}

/// Formats a number in four digits, or all of a whole one: `1.008`, `0.00001`, `442,230`.
pub fn grouped(value: f64) -> String {
    if value.abs() < 999.95 {
        return digits(value, 4);
    }
    let whole = format!("{:.0}", value.abs());
    let mut shown = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Formats a number in at most so many significant digits, without zeros at the end.
fn digits(value: f64, most: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{}", value.abs());
    }
    let decimals = (most - 1 - value.abs().log10().floor() as i32).clamp(0, 12) as usize;
    let shown = format!("{value:.decimals$}");
    match shown.contains('.') {
        true => shown.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => shown,
    }
}

fn microseconds(us: f64) -> String {
    if us >= 1000.0 { format!("{} ms", us.round() / 1000.0) } else { format!("{us} us") }
}

/// Returns the share of `part` in `all`; zero if `all` is zero.
pub fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { part as f64 / all as f64 }
}

/// Formats a number of threads: `1 thread`, `4 threads`.
pub fn threads(count: usize) -> String {
    format!("{count} thread{}", if count == 1 { "" } else { "s" })
}

/// Reads `768`, `31K`, `4M` or `1G`, and rounds up to whole cache lines.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, KIB),
        None => match text.strip_suffix(['M', 'm']) {
            Some(digits) => (digits, MIB),
            None => match text.strip_suffix(['G', 'g']) {
                Some(digits) => (digits, MIB * KIB),
                None => (text, 1),
            },
        },
    };
    digits
        .parse::<usize>()
        .ok()
        .and_then(|count| count.checked_mul(unit))
        .and_then(|bytes| bytes.checked_next_multiple_of(LINE_BYTES))
        .ok_or_else(|| "a size is a whole number of bytes, or of K, M or G: 768, 31K, 4M".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_exactly() {
        for (size, shown) in [(0, "0"), (768, "768 B"), (31 << 10, "31 KB"), (4 << 20, "4 MB"), (9280, "9280 B")] {
            assert_eq!(bytes(size), shown);
        }
    }

    #[test]
    fn numbers_have_four_digits() {
        for (value, short, long) in [
            (0.0, "0", "0"),
            (0.000_01, "0.00001", "0.00001"),
            (1.0081, "1.008", "1.008"),
            (5.3, "5.3", "5.3"),
            (905.0, "905", "905"),
            (6_757.0, "6757", "6,757"),
            (442_230.0, "442.2k", "442,230"),
            (3_260_412.4, "3.26M", "3,260,412"),
            (999_999.0, "1M", "999,999"),
        ] {
            assert_eq!((&*brief(value), &*grouped(value)), (short, long));
        }
    }

    #[test]
    fn values_have_their_units() {
        let shown = |quantity: Quantity, value| (quantity.briefly(value), quantity.precisely(value));
        let both = |text: &str| (text.to_owned(), text.to_owned());
        assert_eq!(shown(Quantity::Throughput, 3_260_412.0), ("3.26M".to_owned(), "3,260,412".to_owned()));
        assert_eq!(shown(Quantity::Ratio, 1.5217), both("1.52"));
        assert_eq!(shown(Quantity::FalsePositives, 0.003), both("0.003 %"));
        assert_eq!(shown(Quantity::Bytes, 4096.0), both("4 KB"));
    }

    #[test]
    fn sizes_are_read_in_units_and_whole_lines() {
        for (text, size) in [("768", 768), ("31K", 31 << 10), ("4m", 4 << 20), ("1G", 1 << 30), ("1", 64), ("0", 0)] {
            assert_eq!(parse_bytes(text), Ok(size), "{text}");
        }
        for text in
            ["", "K", "-1", "1.5K", "4T", "99999999999999999999", "18446744073709551615", "18446744073709551615G"]
        {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_change_unit_at_a_millisecond() {
        assert_eq!(Quantity::Microseconds.show(250.0), "250 us");
        assert_eq!(Quantity::Microseconds.show(4000.0), "4 ms");
        assert_eq!(Quantity::Microseconds.show(3990.0), "3.99 ms");
    }
}
