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

/// Runs `first` and `second` concurrently on a world in every way there is with so many preemptions, then `check`.
pub(crate) fn explore<W: Clone + Send + Sync + 'static, T: Send + 'static>(
    preemptions: usize,
    world: impl Fn() -> W + Send + Sync + 'static,
    first: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    second: impl Fn(&W) -> T + Copy + Send + Sync + 'static,
    check: impl Fn(&W, T, T) + Send + Sync + 'static,
) {
    let (world, check) = (Arc::new(world), Arc::new(check));
    // Either on the model's first thread: what loom explores depends on it, and a reader there hides much.
    for second_leads in [false, true] {
        let (world, check) = (Arc::clone(&world), Arc::clone(&check));
        model(preemptions).check(move || {
            let world = world();
            let other = world.clone();
            let (one, two) = if second_leads {
                let thread = thread::spawn(move || first(&other));
                let two = second(&world);
                (thread.join().expect("no panic"), two)
            } else {
                let thread = thread::spawn(move || second(&other));
                let one = first(&world);
                (one, thread.join().expect("no panic"))
            };
            check(&world, one, two);
        });
    }
}
