//! What nodes that are simulated machines cost: NICs that serve messages, senders, and caches.

use std::{cell::Cell, rc::Rc, time::Duration};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Cost, Fabric, NicProfile, NodeId, Overhead, Phase, Port, RunEnd, Sender, Sim, SimConfig, Spawner,
    machine::MachineProfile,
    rpc::{Incoming, Procedure, Rpc, serve},
};

/// Charges what it is told to: cycles of a NIC, and nanoseconds of a processor.
enum Work {}

impl Procedure for Work {
    const NUMBER: u16 = 1;
    type Request<'a> = (u64, u64);
    type Reply<'a> = ();
}

/// Serves [`Work`] on a worker.
fn answer<P: Port>(spawner: &Spawner<'_, P>) {
    let endpoint = spawner.endpoint();
    let handle = move |call: Incoming<'_>| {
        call.answer::<Work>(|(cycles, nanos)| {
            if cycles > 0 {
                endpoint.charge(Cost::Nic(cycles));
            }
            if nanos > 0 {
                endpoint.charge(Cost::Nanos(nanos));
            }
            Ok(())
        })
    };
    spawner.serve(serve(endpoint.during(Phase::Other), handle)).expect("it runs");
}

/// Returns how long calls take that are made at the same time, each from a worker of its own: what
/// each charges, and what sends it. Node 1 has a processor, and a NIC that serves if `by_nic`.
fn calls(by_nic: bool, of: &[(u64, u64, Sender)]) -> Vec<u64> {
    let sim = Sim::<NoHtm>::new(2, SimConfig::new(&NicProfile::HADES).jitter(Duration::ZERO));
    let took: Vec<Rc<Cell<u64>>> = of.iter().map(|_| Rc::default()).collect();
    sim.serve(NodeId(1), |spawner| answer(&spawner)).expect("a node");
    if by_nic {
        sim.serve_as_nic(NodeId(1), |spawner| answer(&spawner)).expect("a node");
    }
    for ((cycles, nanos, sender), took) in of.iter().copied().zip(&took) {
        let took = Rc::clone(took);
        sim.spawn(NodeId(0), move |spawner| {
            let endpoint = spawner.endpoint();
            let call = async move {
                let rpc = Rpc::new(endpoint.during(Phase::Other)).sent_by(sender);
                let began = endpoint.now();
                rpc.call::<Work>(NodeId(1), &(cycles, nanos), None).await.expect("it is there");
                took.set(endpoint.now().since(began).as_nanos() as u64);
            };
            spawner.spawn(call).expect("it runs");
        })
        .expect("a node");
    }
    assert_eq!(sim.run(), RunEnd::Done);
    took.iter().map(|took| took.get()).collect()
}

const PLAIN: (u64, u64, Sender) = (0, 0, Sender::Message);

#[test]
fn what_no_nic_can_do_takes_a_processor() {
    let [alone] = calls(true, &[PLAIN])[..] else { panic!("one call") };
    let of_processor = (0, 1_000, Sender::Message);
    let [one] = calls(true, &[of_processor])[..] else { panic!("one call") };
    assert!(one > alone + 1_300, "with taking the message and sending the answer: {one} ns");
    let two = calls(true, &[of_processor; 2]);
    assert!(two.iter().max() > Some(&(one + 1_000)), "there is one processor: {two:?}");
}

#[test]
fn senders_differ_by_what_a_processor_does() {
    let by = |sender| calls(true, &[(0, 0, sender)])[0];
    let [message, verb, nic] = [Sender::Message, Sender::Verb, Sender::Nic].map(by);
    assert!(message > verb && verb > nic + 100, "{message}, {verb}, {nic}");
}

#[test]
fn verbs_and_accesses_take_the_time_of_caches_and_memory() {
    let config = SimConfig::new(&NicProfile::HADES).jitter(Duration::ZERO);
    let sim = Sim::<NoHtm>::new(2, config.machine(MachineProfile::HADES));
    let endpoint = sim.fabric().endpoint(NodeId(0)).expect("a node");
    let charged = |cost| {
        let before = endpoint.now();
        endpoint.charge(cost);
        endpoint.now().since(before).as_nanos()
    };
    let access = |writes| Cost::Access { at: 0, bytes: 65, writes };
    assert_eq!([charged(access(false)), charged(access(true))], [2 * 120, 2]);
    assert_eq!(charged(Cost::Overhead(Overhead::ManageSets, 100)), 50);
    assert_eq!(sim.overheads()[Overhead::ManageSets as usize], Duration::from_nanos(50));

    let plain = Sim::<NoHtm>::new(1, SimConfig::new(&NicProfile::HADES));
    let endpoint = plain.fabric().endpoint(NodeId(0)).expect("a node");
    let before = endpoint.now();
    endpoint.charge(access(true));
    endpoint.charge(Cost::Overhead(Overhead::ManageSets, 100));
    assert_eq!((endpoint.now(), plain.overheads()[1]), (before, Duration::ZERO), "where nodes are no machines");
}
