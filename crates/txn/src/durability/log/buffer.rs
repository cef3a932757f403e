//! Buffers of records that wait for the leader to write them.

#[derive(Debug, Default)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    /// The newest epoch of a record.
    pub(super) newest: u64,
}
