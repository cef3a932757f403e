//! Shared code of the model-checked tests.

use drtm_testing::preemptions;
use loom::thread;

/// Explores all schedules with this many preemptions.
pub(crate) fn model(usual: usize) -> loom::model::Builder {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions(usual));
    model.max_branches = 50_000;
    model
}

/// Explores all interleavings of `first` and `second` on a world with this many preemptions, then
/// runs `check`.
pub(crate) fn explore<W: Clone + Send + Sync + 'static, T: Send + 'static>(
    preemptions: usize,
    world: impl Fn() -> W + Send + Sync + 'static,
    first: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&W, T, T) + Send + Sync + 'static,
) {
    model(preemptions).check(move || {
        let world = world();
        let other = world.clone();
        // The writer is the spawned thread. Loom remembers only the last access to a word, and
        // forgets a reader's when the other thread reads before it writes. The other way round, it
        // would see no reason to interleave them.
        let thread = thread::spawn(move || first(&other));
        let two = second(&world);
        let one = thread.join().expect("no panic");
        check(&world, one, two);
    });
}
