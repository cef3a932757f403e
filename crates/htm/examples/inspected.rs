//! The functions whose generated code `tests/suite/codegen.rs` inspects, and whose instructions can
//! be counted:
//!
//! ```text
//! cargo build --profile bench -p drtm-htm --example inspected
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*software_alone*' target/release/examples/inspected
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='*software_behind_a_choice*' target/release/examples/inspected
//! ```
//!
//! The compiler usually finds `software_alone` and `software_behind_an_attempt` to be one function,
//! and keeps one of them: then its count is that of all three thousand calls.

use std::hint::black_box;

use drtm_htm::{
    Access, AnyHtm, Engine, EngineVisitor, Htm, NoHtm, Outcome, Policy, Request, Rtm, Word, Worker, select,
};

/// How often `main` calls each function.
const CALLS: u64 = 1_000;

/// Two loads and a store in a hardware transaction: `xbegin`, moves, `xend`, and no call between.
#[inline(never)]
fn two_loads_one_store(worker: &mut Worker<Rtm>, from: &Word, also: &Word, to: &Word) -> Outcome<()> {
    worker.attempt(Policy::DBX, |tx| {
        let sum = tx.load(from)?.wrapping_add(tx.load(also)?);
        tx.store(to, sum)
    })
}

/// What a caller does without transactions.
#[inline(always)]
fn software<E: Engine>(engine: &E, from: &Word, also: &Word, to: &Word) {
    let sum = engine.load(from).wrapping_add(engine.load(also));
    engine.store(to, sum);
}

/// The software path by itself: the yardstick of the next function.
#[inline(never)]
fn software_alone(worker: &mut Worker<NoHtm>, from: &Word, also: &Word, to: &Word) {
    software(worker.engine(), from, also, to);
}

/// The software path behind an attempt, on the engine without htm: not one instruction more.
#[inline(never)]
fn software_behind_an_attempt(worker: &mut Worker<NoHtm>, from: &Word, also: &Word, to: &Word) {
    let outcome = worker.attempt(Policy::DBX, |tx| {
        let sum = tx.load(from)?.wrapping_add(tx.load(also)?);
        tx.store(to, sum)
    });
    if let Outcome::Fallback(_) = outcome {
        software(worker.engine(), from, also, to);
    }
}

/// The same behind an engine that is chosen at run time, as a store that is opened without type
/// parameters has it: one test of the choice for each operation, always with the same answer.
#[inline(never)]
fn software_behind_a_choice(chosen: &mut Chosen, from: &Word, also: &Word, to: &Word) {
    match chosen {
        Chosen::Rtm(worker) => {
            let _ = two_loads_one_store(worker, from, also, to);
        }
        Chosen::None(worker) => software_behind_an_attempt(worker, from, also, to),
    }
}

enum Chosen {
    Rtm(Worker<Rtm>),
    None(Worker<NoHtm>),
}

/// Runs the transaction on whichever engine the machine has, to show that it is the same source.
struct Run<'a>([&'a Word; 3]);

impl EngineVisitor for Run<'_> {
    type Output = ();

    fn visit<E: Engine>(self, htm: Htm<E>) {
        let [from, also, to] = self.0;
        let mut worker = htm.worker();
        let outcome = worker.attempt(Policy::DBX, |tx| {
            let sum = tx.load(from)?.wrapping_add(tx.load(also)?);
            tx.store(to, sum)
        });
        println!("engine {}: {outcome:?}", E::KIND);
    }
}

fn main() -> Result<(), drtm_htm::EngineError> {
    let words = [Word::new(1), Word::new(2), Word::new(0)];
    let [from, also, to] = &words;

    let chosen: AnyHtm = select(Request::Auto)?;
    println!("chosen because {}", chosen.reason());
    chosen.dispatch(Run([from, also, to]));

    let mut worker = Htm::new(NoHtm).worker();
    let mut chosen = match Rtm::detect() {
        Ok(rtm) => Chosen::Rtm(Htm::new(rtm).worker()),
        Err(_) => Chosen::None(Htm::new(NoHtm).worker()),
    };
    for _ in 0..CALLS {
        software_alone(black_box(&mut worker), from, also, to);
        software_behind_an_attempt(black_box(&mut worker), from, also, to);
        software_behind_a_choice(black_box(&mut chosen), from, also, to);
    }
    println!("sum {}", NoHtm.load(to));
    Ok(())
}
