//! A configuration: bytes with a number. What they say is for the cluster to know.

use std::{fmt, sync::Arc};

/// The most bytes of a configuration. Every implementation can carry as many.
pub const MOST_BYTES: usize = 1 << 20;

/// What a cluster has agreed on: content that never changes, with its number.
///
/// Numbers have no gaps: the configuration after number `n` is number `n + 1`, and each number
/// is given to one content only. Number 0 is [`Configuration::none`], before the first one.
///
/// # Example
///
/// ```
/// use drtm_membership::Configuration;
///
/// let first = Configuration::new(1, *b"three nodes");
/// assert_eq!(first.content(), b"three nodes");
/// assert!(first.number() > Configuration::none().number());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Configuration {
    number: u32,
    content: Arc<[u8]>,
}

impl Configuration {
    /// Makes a configuration.
    #[must_use]
    pub fn new(number: u32, content: impl Into<Arc<[u8]>>) -> Self {
        Self { number, content: content.into() }
    }

    /// Returns what is in force before the first configuration: nothing, with number 0.
    #[must_use]
    pub fn none() -> Self {
        Self::new(0, [])
    }

    /// Returns the number. Of two configurations, the one with the higher number is newer.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the content.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        &self.content
    }
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Configuration({}, \"{}\")", self.number, self.content.escape_ascii())
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration {} of {} bytes", self.number, self.content.len())
    }
}
