//! One suite that all engines of agreement pass, and what each of them has beyond it.

mod directory;
mod driver;
#[cfg(feature = "raft")]
mod entry;
#[cfg(feature = "etcd")]
mod etcd;
mod history;
mod processes;
#[cfg(feature = "raft")]
mod raft;
#[cfg(feature = "raft")]
mod raft_processes;
mod register;
#[cfg(feature = "raft")]
mod transport;

use drtm_membership::{Configuration, Error, Fixed, MOST_BYTES, Membership};

#[test]
fn a_fixed_membership_never_changes() {
    let first = Configuration::new(3, *b"two nodes");
    let fixed = Fixed::new(first.clone());
    assert_eq!(fixed.read().wait(), Ok(first.clone()));
    assert_eq!(fixed.replace(3, b"one").wait(), Err(Error::Fixed));
    assert_eq!(fixed.replace(2, b"one").wait(), Err(Error::Fixed));
    assert_eq!(fixed.watch(2).wait(), Ok(first.clone()));
    let mut watch = fixed.watch(3);
    assert!(watch.take().is_none());
    drop(fixed);
    assert_eq!(watch.take(), Some(Err(Error::Closed)));
}

/// What each engine does with limits, and with an empty content.
fn limits(
    membership: &dyn Membership,
    wait: impl Fn(drtm_membership::Answer<Configuration>) -> Result<Configuration, Error>,
) {
    assert_eq!(wait(membership.read()), Ok(Configuration::none()));
    assert_eq!(wait(membership.replace(u32::MAX, b"")), Err(Error::NoNumber));
    let most = vec![7; MOST_BYTES];
    let too_large = [&most[..], &[0]].concat();
    assert_eq!(wait(membership.replace(0, &too_large)), Err(Error::TooLarge { bytes: MOST_BYTES + 1 }));
    let future = wait(membership.replace(5, b"")).expect_err("a number from the future");
    assert!(future.may_have_happened() || future == Error::Outdated { current: Configuration::none() });
    let first = Configuration::new(1, &*most);
    assert_eq!(wait(membership.replace(0, &most)), Ok(first.clone()));
    assert_eq!(wait(membership.read()), Ok(first));
    let second = Configuration::new(2, []);
    assert_eq!(wait(membership.replace(1, b"")), Ok(second.clone()));
    assert_eq!(wait(membership.watch(1)), Ok(second.clone()));
    assert_eq!(membership.known(), second);
}
