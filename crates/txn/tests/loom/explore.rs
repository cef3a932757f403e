//! What the model-checked tests share.

use std::sync::Arc;

use drtm_testing::preemptions;
use loom::thread;

/// All schedules with so many preemptions.
pub(crate) fn model(usual: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions(usual));
    model.max_branches = 20_000;
    model
}

/// Runs `first` and `second` concurrently on a world in every way there is with so many
/// preemptions, then `check`.
///
/// Either is once on the model's first thread: what loom explores depends on it, and a reader there
/// hides much.
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

/// Like [`explore`], for two that differ in nothing but names, of keys or values: which of them is
/// on the model's first thread makes no difference.
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
