//! Every constant of the simulated machine, with its source.
//!
//! *HADES* is "HADES: Hardware-Assisted Distributed Transactions in the Age of Fast Networks and
//! SmartNICs", ISCA 2024. A constant that it does not give is marked *assumed*, with the reason.
//! Nothing is fitted to a result.

/// A cache line of a node's memory: its address, divided by [`Line::BYTES`].
///
/// # Example
///
/// ```
/// use drtm_rdma::machine::Line;
///
/// assert_eq!(Line::of(4096 + 63), Line(64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line(pub u64);

impl Line {
    /// The bytes of a line. Assumed: the paper does not say, and its processors have 64.
    pub const BYTES: u64 = 64;

    /// Returns the line of a byte's address.
    ///
    /// # Example
    ///
    /// See [`Line`].
    #[must_use]
    pub const fn of(address: u64) -> Self {
        Self(address / Self::BYTES)
    }

    /// Returns the lines of so many bytes from an address on: at least one.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm_rdma::machine::Line;
    ///
    /// assert!(Line::all(60, 8).eq([Line(0), Line(1)]));
    /// ```
    pub fn all(address: u64, bytes: u64) -> impl Iterator<Item = Self> + Clone {
        (Self::of(address).0..=Self::of(address + bytes.max(1) - 1).0).map(Self)
    }
}

/// The size and latency of a cache.
///
/// # Example
///
/// ```
/// use drtm_rdma::machine::MachineProfile;
///
/// assert_eq!(MachineProfile::HADES.l1.sets(), 128);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Bytes of data.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: usize,
    /// Cycles until the value is there.
    pub cycles: u64,
}

impl Level {
    /// Returns the number of sets.
    ///
    /// # Example
    ///
    /// See [`Level`].
    #[must_use]
    pub const fn sets(&self) -> usize {
        (self.bytes / Line::BYTES) as usize / self.ways
    }
}

/// Which line of a full set of the last-level cache is evicted.
///
/// # Example
///
/// ```
/// use drtm_rdma::machine::{MachineProfile, Replacement};
///
/// assert_eq!(MachineProfile::HADES.replacement, Replacement::SparesWritten);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used one.
    Lru,
    /// The least recently used one of those that no transaction under way has written, if there is
    /// one.
    SparesWritten,
}

/// The constants of a simulated machine.
///
/// # Example
///
/// ```
/// use drtm_rdma::machine::MachineProfile;
///
/// let profile = MachineProfile::HADES;
/// assert_eq!((profile.nodes, profile.cores, profile.multiplexed), (5, 5, 2));
/// assert_eq!(profile.transactions(), 10, "on each node");
/// assert_eq!(profile.wire_cycles(64), 6, "64 bytes by 200 Gb/s are 5.12 cycles of 2 GHz");
/// let larger = MachineProfile::cluster(8, 25, 7);
/// assert_eq!((larger.transactions(), larger.nic_pairs), (50, 350));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MachineProfile {
    /// Nodes.
    pub nodes: usize,
    /// Cores of a node: at most 32.
    pub cores: usize,
    /// Transactions at a time on each core.
    pub multiplexed: usize,
    /// Cycles per microsecond.
    pub cycles_per_us: u64,
    /// The first-level cache of a core.
    pub l1: Level,
    /// The second-level cache of a core.
    pub l2: Level,
    /// A core's slice of the last-level cache.
    pub llc: Level,
    /// Which line the last-level cache evicts.
    pub replacement: Replacement,
    /// Bits of a core's read filter.
    pub read_bits: u32,
    /// Bits of a core's write filter: those set by the hash, and those set by the cache's index.
    pub write_bits: (u32, u32),
    /// Bits of each filter of a NIC.
    pub nic_bits: u32,
    /// Pairs of filters of a NIC.
    pub nic_pairs: usize,
    /// Locking buffers of a directory.
    pub locking_buffers: usize,
    /// Cycles of the hash of an address.
    pub hash: u64,
    /// Cycles to find a transaction's written lines: without any, and for each line.
    pub find_tags: (u64, u64),
    /// Cycles of a memory access.
    pub memory: u64,
    /// Memory channels.
    pub channels: usize,
    /// Cycles for which a line occupies its channel.
    pub channel_line: u64,
    /// Cycles of a round trip from NIC to NIC.
    pub round_trip: u64,
    /// Gigabits per second of a link.
    pub link_gbit: u64,
    /// Cycles of a hundred instructions of [software](super::Software).
    pub instructions: u64,
    /// Queue pairs of a NIC. Each transaction has one to each other node, so that its messages to
    /// that node are in order.
    pub queue_pairs: usize,
}

impl MachineProfile {
    /// The default cluster of HADES' Table III: N = 5, C = 5. Its transactions can reach all D = 4
    /// other nodes.
    pub const HADES: Self = Self::cluster(5, 5, 4);

    /// Returns the machine of HADES' Table III, with this many nodes, cores of a node, and other
    /// nodes that a transaction reaches.
    ///
    /// # Example
    ///
    /// See [`MachineProfile`].
    #[must_use]
    pub const fn cluster(nodes: usize, cores: usize, reached: usize) -> Self {
        // Table III: m = 2.
        let multiplexed = 2;
        Self {
            nodes,
            cores,
            multiplexed,
            // Table III: 2 GHz.
            cycles_per_us: 2_000,
            // Table III.
            l1: Level { bytes: 64 << 10, ways: 8, cycles: 2 },
            l2: Level { bytes: 512 << 10, ways: 8, cycles: 12 },
            llc: Level { bytes: 4 << 20, ways: 16, cycles: 40 },
            // Section VIII-C, which says so of one experiment. Of the others it says nothing.
            replacement: Replacement::SparesWritten,
            // Table III.
            read_bits: 1024,
            write_bits: (512, 4096),
            nic_bits: 1024,
            // Section VI: m * C * D pairs.
            nic_pairs: multiplexed * cores * reached,
            // Section V-B: "multiple". Assumed: one for each transaction of the cluster, so that
            // none lacks a buffer.
            locking_buffers: nodes * multiplexed * cores,
            // Table III.
            hash: 2,
            // Table III: 80 to 120 cycles, and section V-C: around 5 lines. Assumed: in proportion.
            find_tags: (80, 8),
            // Table III: 100 ns.
            memory: 200,
            // Table III: 4 channels of 64 bits at 1 GHz, with two transfers a cycle: 4 ns a line.
            // Its 8 banks are not modelled: it does not say for how long a bank is busy.
            channels: 4,
            channel_line: 8,
            // Table III: 2 us.
            round_trip: 4_000,
            // Table III.
            link_gbit: 200,
            // Assumed: one a cycle. Table III has the width of a core, and no rate.
            instructions: 100,
            // Section VII.
            queue_pairs: 400,
        }
    }

    /// Returns the cycles of a first access of a line, without those of memory. Assumed: the hash
    /// is on the path. Section V-B hides it behind the lookup of tags, but section VII says that
    /// the latency of adding to filters is modelled.
    pub(super) const fn directory(&self) -> u64 {
        self.llc.cycles + self.hash
    }

    /// Returns the number of transactions that a node runs at a time.
    ///
    /// # Example
    ///
    /// See [`MachineProfile`].
    #[must_use]
    pub const fn transactions(&self) -> usize {
        self.cores * self.multiplexed
    }

    /// Returns the cycles for which this many bytes occupy a link, rounded up.
    ///
    /// # Example
    ///
    /// See [`MachineProfile`].
    #[must_use]
    pub const fn wire_cycles(&self, bytes: u64) -> u64 {
        (bytes * 8 * self.cycles_per_us).div_ceil(self.link_gbit * 1_000)
    }

    /// Returns the cycles to find a transaction's written lines in the directory.
    pub(super) const fn finding(&self, lines: usize) -> u64 {
        self.find_tags.0 + self.find_tags.1 * lines as u64
    }

    /// Returns the cycles to pass addresses through filters: one after the other, each hashed once.
    pub(super) const fn probing(&self, lines: usize) -> u64 {
        self.hash * lines as u64
    }

    /// Returns the cycles to load a locking buffer. Assumed: one access to the directory.
    pub(super) const fn locking(&self) -> u64 {
        self.llc.cycles
    }

    /// Returns the cycles to access lines of the directory one after the other. Assumed: pipelined,
    /// as fast as their addresses are hashed.
    pub(super) const fn streaming(&self, lines: usize) -> u64 {
        if lines == 0 { 0 } else { self.llc.cycles + self.hash * (lines as u64 - 1) }
    }
}
