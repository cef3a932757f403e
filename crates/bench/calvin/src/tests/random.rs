//! Random programs in virtual time.

use proptest::prelude::*;

use super::{Case, together};

fn cases() -> impl Strategy<Value = Case> {
    (1..=4_u16, 1..=4_u16, 1..=12_u32, 1..=3_u64, 1..=10_u8, any::<u64>())
        .prop_map(|(nodes, workers, batch, epochs, keys, inputs)| Case { nodes, workers, batch, epochs, keys, inputs })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_run_is_as_a_serial_one_however_messages_are_delayed(case in cases(), delays in any::<[u64; 2]>()) {
        let outcomes = delays.map(|delays| case.run(delays, None).expect("it ends"));
        for outcome in &outcomes {
            prop_assert_eq!(case.differs(outcome), None);
        }
        let [one, other] = outcomes;
        prop_assert_eq!(one.history, other.history);
        prop_assert_eq!(together(&one.rows), together(&other.rows));
    }
}

#[test]
fn one_seed_gives_one_trace() {
    let case = Case { nodes: 3, workers: 2, batch: 10, epochs: 3, keys: 6, inputs: 1 };
    let trace = |delays| case.run(delays, None).expect("it ends").trace;
    assert_eq!(trace(5), trace(5));
    assert_ne!(trace(5), trace(6));
}
