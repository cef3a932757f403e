//! Random programs, compared with a simple model: a vector of numbers.

use drtm_htm::{
    Access, Cause, Emulated, EmulatedConfig, Engine, FallbackLock, Htm, Line, NoHtm, Policy, Profile, Timer,
};
use proptest::prelude::*;

use crate::support::{lines, values};

const LINES: usize = 12;
const STOP: u8 = 3;

/// One step of a body.
#[derive(Clone, Debug)]
enum Step {
    Load(usize),
    Store(usize, u64),
    /// A nested htm transaction with these steps.
    Nested(Vec<Step>),
    Abort,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![
        8 => (0..LINES).prop_map(Step::Load),
        8 => (0..LINES, 0..100u64).prop_map(|(line, value)| Step::Store(line, value)),
        1 => Just(Step::Abort),
    ];
    let step = leaf.prop_recursive(2, 12, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Step::Nested));
    prop::collection::vec(step, 0..10)
}

/// Runs the steps; returns the loaded values.
fn run<'m, A: Access<'m>>(tx: &mut A, memory: &'m [Line], steps: &[Step], seen: &mut Vec<u64>) -> Result<(), A::Abort> {
    for step in steps {
        match step {
            Step::Load(line) => seen.push(tx.load(&memory[*line][0])?),
            Step::Store(line, value) => tx.store(&memory[*line][0], *value)?,
            Step::Nested(steps) => tx.nested(|tx| run(tx, memory, steps, seen))?,
            Step::Abort => return Err(tx.abort::<STOP>()),
        }
    }
    Ok(())
}

/// Runs the steps on the model; returns `false` on abort.
fn run_model(memory: &mut [u64], steps: &[Step], seen: &mut Vec<u64>) -> bool {
    steps.iter().all(|step| match step {
        Step::Load(line) => {
            seen.push(memory[*line]);
            true
        }
        Step::Store(line, value) => {
            memory[*line] = *value;
            true
        }
        Step::Nested(steps) => run_model(memory, steps, seen),
        Step::Abort => false,
    })
}

fn agrees_with_the_model<E: Engine>(htm: &Htm<E>, programs: &[Vec<Step>]) -> Result<(), TestCaseError> {
    let (lock, memory) = (FallbackLock::new(), lines(LINES));
    let mut worker = htm.worker();
    let mut model = vec![0; LINES];
    for program in programs {
        let (mut after, mut expected) = (model.clone(), Vec::new());
        let commits = run_model(&mut after, program, &mut expected);

        let result = worker.elide(
            &lock,
            Policy::DBX,
            |tx| {
                let mut seen = Vec::new();
                run(tx, &memory, program, &mut seen).map(|()| seen)
            },
            |held| {
                let mut seen = Vec::new();
                run(held, &memory, program, &mut seen).map(|()| seen)
            },
        );
        if commits {
            prop_assert_eq!(result, Ok(expected));
            model = after;
        } else {
            prop_assert_eq!(result, Err(Cause::Explicit(STOP)));
        }
        prop_assert_eq!(&values(htm.engine(), &memory), &model);
    }
    Ok(())
}

proptest! {
    #[test]
    fn without_htm(programs in prop::collection::vec(steps(), 1..12)) {
        agrees_with_the_model(&Htm::new(NoHtm), &programs)?;
    }

    #[test]
    fn in_transactions(programs in prop::collection::vec(steps(), 1..12)) {
        agrees_with_the_model(&Htm::new(Emulated::default()), &programs)?;
    }

    /// Little capacity and many interrupts, so that htm transactions and sections under the lock
    /// alternate.
    #[test]
    fn in_both(programs in prop::collection::vec(steps(), 1..12), seed: u64, ways in 1..4usize, one_in in 0..30u32) {
        let config = EmulatedConfig::new(Profile::new(2, ways, 4))
            .with_timer(Timer::Virtual { period: 61, access: 2 })
            .with_tracked_lines(4)
            .with_events_one_in(one_in)
            .with_seed(seed);
        agrees_with_the_model(&Htm::new(Emulated::new(config).expect("valid")), &programs)?;
    }
}
