//! A membership that never changes.

use crate::{Membership, answer::Answer, configuration::Configuration, error::Error, latest::Latest};

/// A configuration that is never replaced: for tests, benches, and two nodes without a third
/// opinion.
///
/// # Example
///
/// ```
/// use drtm_membership::{Configuration, Error, Fixed, Membership};
///
/// let membership = Fixed::new(Configuration::new(1, *b"two nodes"));
/// assert_eq!(membership.read().wait()?.number(), 1);
/// assert_eq!(membership.replace(1, b"one node").wait(), Err(Error::Fixed));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Fixed(Latest);

impl Fixed {
    /// Makes a membership that stays as it is.
    #[must_use]
    pub fn new(configuration: Configuration) -> Self {
        Self(Latest::new(configuration, None))
    }
}

impl Membership for Fixed {
    fn read(&self) -> Answer<Configuration> {
        Answer::ready(Ok(self.0.known()))
    }

    fn replace(&self, _expected: u32, _content: &[u8]) -> Answer<Configuration> {
        Answer::ready(Err(Error::Fixed))
    }

    fn watch(&self, after: u32) -> Answer<Configuration> {
        self.0.watch(after)
    }

    fn known(&self) -> Configuration {
        self.0.known()
    }
}
