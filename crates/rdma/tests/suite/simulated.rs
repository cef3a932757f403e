//! The simulated fabric, as the suite makes it: the test is node 0, which drives the simulation,
//! and each agent is a worker of a node.

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use drtm_htm::{Engine, NoHtm};
use drtm_rdma::{Buffers, Fabric, Fault, NodeId, Region, RegionId, Remains, Sim, SimConfig, SimFabric};

use crate::{
    agent::{Agent, Order, PATIENCE, Progress, begin, growing},
    support::{Mood, Testbed, World, fresh},
};

impl Mood for SimConfig {
    fn queue_depth(self, operations: usize) -> Self {
        SimConfig::queue_depth(self, operations)
    }

    fn mailbox(self, messages: usize) -> Self {
        SimConfig::mailbox(self, messages)
    }

    fn buffers(self, buffers: Buffers) -> Self {
        SimConfig::buffers(self, buffers)
    }
}

/// The simulated fabric.
pub(crate) struct Simulated;

/// An agent that is a worker of a simulated node.
pub(crate) struct Member {
    sim: Rc<Sim<NoHtm>>,
    node: NodeId,
    memory: Arc<Region<NoHtm>>,
    begun: RefCell<Option<Arc<Progress>>>,
}

impl Member {
    /// A node, with fresh memory.
    fn new(sim: &Rc<Sim<NoHtm>>, node: NodeId) -> Self {
        let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
        assert_eq!(sim.fabric().register(node, Arc::clone(&memory)).expect("a node"), RegionId(0));
        Self { sim: Rc::clone(sim), node, memory, begun: RefCell::default() }
    }

    fn halt(&self) {
        if let Some(progress) = self.begun.take() {
            progress.halt();
            // It looks every millisecond at the least.
            self.sim.run_for(Duration::from_millis(3));
        }
    }
}

impl Agent for Member {
    fn ask(&self, order: Order) -> u64 {
        match order {
            Order::Load(at) => return NoHtm.load(&self.memory.words(at, 1).expect("a word")[0]),
            Order::Serve(_) | Order::Collect(_) | Order::CallAround(..) | Order::KeepCalling(_) | Order::Grow(_) => {
                self.halt();
                let progress = Arc::new(Progress::default());
                let memory = match order {
                    Order::Grow(_) => growing(self.sim.fabric(), self.node, &self.memory),
                    _ => Arc::clone(&self.memory),
                };
                let begun = Arc::clone(&progress);
                let start = self.sim.spawn(self.node, move |worker| begin(order, &worker, memory, &begun));
                start.expect("an endpoint");
                self.begun.replace(Some(progress));
            }
            Order::Await => {
                let progress = self.begun.borrow();
                let progress = progress.as_ref().expect("something was begun");
                let start = self.sim.elapsed();
                loop {
                    if let Some(result) = progress.result() {
                        return result;
                    }
                    assert!(self.sim.elapsed() - start < PATIENCE, "what was begun does not end");
                    self.sim.run_for(Duration::from_micros(10));
                }
            }
            Order::Halt => self.halt(),
            Order::Leave => self.sim.befall(Fault::Leave { node: self.node }).expect("a node"),
            Order::Die => self.sim.befall(Fault::Crash { node: self.node }).expect("a node"),
        }
        0
    }
}

impl Testbed for Simulated {
    type Mood = SimConfig;
    type Fabric = SimFabric<NoHtm>;
    type Agent = Member;

    fn start(nodes: u16, mood: SimConfig) -> World<Self> {
        let sim = Rc::new(Sim::new(nodes, mood));
        let own = Member::new(&sim, NodeId(0));
        let agents = (1..nodes).map(|node| Member::new(&sim, NodeId(node))).collect();
        World { fabric: sim.fabric().clone(), memory: own.memory, agents, _rest: Box::new(sim) }
    }

    fn restart(world: &mut World<Self>, node: NodeId) {
        let agent = &mut world.agents[usize::from(node.0) - 1];
        let sim = Rc::clone(&agent.sim);
        sim.restart(node, Remains::Nothing).expect("it is gone");
        *agent = Member::new(&sim, node);
    }

    fn own(world: &World<Self>) -> Box<dyn Agent> {
        let Some(sim) = world._rest.downcast_ref::<Rc<Sim<NoHtm>>>() else { unreachable!("put there at the start") };
        let memory = Arc::clone(&world.memory);
        Box::new(Member { sim: Rc::clone(sim), node: NodeId(0), memory, begun: RefCell::default() })
    }

    fn meanwhile(world: &World<Self>, node: u16, order: Order, body: impl FnOnce()) {
        let agent = world.agent(node);
        let fault = match order {
            Order::Die => Fault::Crash { node: agent.node },
            Order::Leave => Fault::Leave { node: agent.node },
            other => unreachable!("{other:?} is not planned"),
        };
        agent.sim.plan(Duration::from_millis(5), fault);
        body();
    }
}
