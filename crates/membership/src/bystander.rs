//! The handle of a node that has no part in the agreement.

use crate::{Membership, answer::Answer, configuration::Configuration, error::Error, latest::Latest};

/// A membership that cannot be asked, and has nothing to tell: for nodes that take no part in the
/// agreement, and learn from those that do who is a member.
///
/// # Example
///
/// ```
/// use drtm_membership::{Bystander, Membership};
///
/// let membership = Bystander::default();
/// assert!(membership.read().wait().is_err() && membership.replace(0, b"me").wait().is_err());
/// assert_eq!(membership.known().number(), 0);
/// ```
#[derive(Debug)]
pub struct Bystander(Latest);

impl Default for Bystander {
    fn default() -> Self {
        Self(Latest::new(Configuration::none(), None))
    }
}

impl Membership for Bystander {
    fn read(&self) -> Answer<Configuration> {
        Answer::ready(Err(Error::unavailable(NO_PART)))
    }

    fn replace(&self, _expected: u32, _content: &[u8]) -> Answer<Configuration> {
        Answer::ready(Err(Error::unavailable(NO_PART)))
    }

    fn watch(&self, after: u32) -> Answer<Configuration> {
        self.0.watch(after)
    }

    fn known(&self) -> Configuration {
        self.0.known()
    }
}

const NO_PART: &str = "this node takes no part in the agreement";
