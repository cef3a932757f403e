//! What the model-checked tests share.

use loom::thread;

/// Runs `first` and `second` concurrently on a world, in every way there is with so many preemptions, then `check`.
pub(crate) fn explore<W: Clone + Send + Sync + 'static, T: Send + 'static>(
    preemptions: usize,
    world: impl Fn() -> W + Send + Sync + 'static,
    first: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&W, T, T) + Send + Sync + 'static,
) {
    let bound = std::env::var("LOOM_MAX_PREEMPTIONS").ok().and_then(|bound| bound.parse().ok());
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(bound.unwrap_or(preemptions));
    model.max_branches = 20_000;
    model.check(move || {
        let world = world();
        let other = world.clone();
        // The one that changes something begins: the checker remembers only the last access to a word, and forgets a reader's when the
        // other reads before it writes, so that the other way round it would see no reason to interleave them.
        let thread = thread::spawn(move || first(&other));
        let two = second(&world);
        let one = thread.join().expect("no panic");
        check(&world, one, two);
    });
}
