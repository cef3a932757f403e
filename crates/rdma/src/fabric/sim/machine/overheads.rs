//! What software of transactions does beside accesses of records, in instructions that were
//! counted.

/// Instructions of this store's transactions, for each row that they access. One instruction is
/// taken as a cycle: assumed, since the paper gives the width of its cores and no rate.
///
/// What a transaction takes once, allocation, and what the compiler has put into functions of other
/// crates, is not counted: on either side of a comparison.
///
/// # Example
///
/// ```
/// use drtm_rdma::machine::Software;
///
/// let Software { body, read, whole, .. } = Software::COUNTED;
/// assert!(body < read + whole);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software {
    /// Running the body: its call, the key's node, and showing it the value. Of every protocol.
    pub body: u64,
    /// Encoding the value of a row that is written. Of every protocol.
    pub body_writes: u64,
    /// Finding where a row of another node is, which the node remembers. Of every protocol.
    pub find: u64,
    /// Keeping a row in the read set, and validating it.
    pub read: u64,
    /// Checking that a row of another node was read whole.
    pub whole: u64,
    /// The same for 8 bytes of its value, with copying them.
    pub whole_word: u64,
    /// Keeping a row in the write set, locking it, and sending its value to its node.
    pub write: u64,
    /// Making the version of a row that is written, and what goes with it.
    pub version: u64,
}

impl Software {
    /// As `scripts/hades-cost` has counted them, in thousands of transactions of rows of 40 bytes.
    pub const COUNTED: Self = Self {
        body: 274,
        body_writes: 819 - 274,
        find: 609,
        read: 1_223,
        whole: 1_037,
        // 212 for the 9 words of the value and the head of its record. Assumed: in proportion.
        whole_word: 212 / 9,
        write: 3_259 - 1_223,
        version: (1_510 - 1_037) + (328 - 212),
    };
}
