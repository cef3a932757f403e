//! Shared code of the model-checked tests.

use std::sync::Arc;

use drtm_testing::preemptions;
use loom::thread;

/// Explores all schedules with this many preemptions.
pub(crate) fn model(usual: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions(usual));
    model.max_branches = 20_000;
    model
}

/// Explores all interleavings of `first` and `second` on a world with this many preemptions, then
/// runs `check`.
///
/// Each is once on the model's first thread: loom's exploration depends on it, and a reader there
/// hides interleavings.
pub(crate) fn explore<W: Clone + Send + Sync + 'static, T: Send + 'static>(
    preemptions: usize,
    world: impl Fn() -> W + Send + Sync + 'static,
    first: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&W, T, T) + Send + Sync + 'static,
) {
    let (world, check) = (Arc::new(world), Arc::new(check));
    let swapped = (Arc::clone(&world), Arc::clone(&check));
    mirrored(preemptions, move || world(), first, second, move |world, one, two| check(world, one, two));
    let (world, check) = swapped;
    mirrored(preemptions, move || world(), second, first, move |world, two, one| check(world, one, two));
}

/// Like [`explore`], for two that differ only in the names of keys or values, so that their order
/// does not matter.
pub(crate) fn mirrored<W: Clone + Send + Sync + 'static, T: Send + 'static>(
    preemptions: usize,
    world: impl Fn() -> W + Send + Sync + 'static,
    first: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&W, T, T) + Send + Sync + 'static,
) {
    model(preemptions).check(move || {
        let world = world();
        let other = world.clone();
        let thread = thread::spawn(move || second(&other));
        let one = first(&world);
        check(&world, one, thread.join().expect("no panic"));
    });
}
