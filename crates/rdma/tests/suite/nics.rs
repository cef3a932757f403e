//! The fabric of machines with RDMA NICs, as the suite makes it: each other node is a process of
//! its own, and all use the one device that there is. Software that is one will do.

use std::{os::unix::net::UnixStream, sync::Arc};

use drtm_htm::{Emulated, NoHtm};
use drtm_rdma::{
    Atomicity, Buffers, Executor, Fabric, Incarnation, NodeId, Phase, Presence, Region, RegionId, Remote, VerbError,
    VerbsConfig, VerbsError, VerbsFabric, block_on, run,
};

use crate::{
    agent::{Agent, Order, PATIENCE, Service, Site},
    machines::{Addresses, TcpMood},
    processes::{Directory, Process, obey},
    support::{BASE, BYTES, Mood, Rig, World, fresh, from_a_thread, rounds, with, word},
};

/// What the fabric over TCP is told, which sets the connections up.
#[derive(Clone, Copy, Default)]
pub(crate) struct NicMood(TcpMood);

impl Mood for NicMood {
    fn queue_depth(self, operations: usize) -> Self {
        Self(self.0.queue_depth(operations))
    }

    fn mailbox(self, messages: usize) -> Self {
        Self(self.0.mailbox(messages))
    }

    fn buffers(self, buffers: Buffers) -> Self {
        Self(self.0.buffers(buffers))
    }
}

impl NicMood {
    fn config(self, addresses: Addresses, node: NodeId, incarnation: u32) -> VerbsConfig {
        VerbsConfig::new(self.0.config(addresses, node, incarnation))
    }
}

struct Rest {
    directory: Directory,
    addresses: Addresses,
    mood: NicMood,
    incarnations: Vec<u32>,
}

impl Rest {
    fn start_agent(&self, node: u16) -> Process {
        let incarnation = self.incarnations[usize::from(node)];
        let what = format!("{node}:{incarnation}:{}:{}", self.addresses.written(), self.mood.0.to_arguments());
        Process::launch("nics::be_an_agent", &what, &self.directory.0, &[])
    }
}

/// Each other node is a process.
pub(crate) struct Nics;

struct Own(Site<VerbsFabric<NoHtm>>);

impl Agent for Own {
    fn ask(&self, order: Order) -> u64 {
        self.0.obey(order)
    }
}

impl Rig for Nics {
    type Mood = NicMood;
    type Fabric = VerbsFabric<NoHtm>;
    type Agent = Process;

    fn start(nodes: u16, mood: NicMood) -> World<Self> {
        let rest = Rest {
            directory: Directory::new(),
            addresses: Addresses::new(),
            mood,
            incarnations: vec![1; usize::from(nodes)],
        };
        let fabric = VerbsFabric::join(NoHtm, mood.config(rest.addresses, NodeId(0), 1)).expect("a cluster");
        let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
        assert_eq!(fabric.register(NodeId(0), Arc::clone(&memory)).expect("room"), RegionId(0));
        let agents = (1..nodes).map(|node| rest.start_agent(node)).collect();
        World { fabric, memory, agents, _rest: Box::new(rest) }
    }

    fn restart(world: &mut World<Self>, node: NodeId) {
        let index = usize::from(node.0);
        world.agents[index - 1].kill();
        let Some(rest) = world._rest.downcast_mut::<Rest>() else { unreachable!("put there at the start") };
        rest.incarnations[index] += 1;
        world.agents[index - 1] = rest.start_agent(node.0);
    }

    fn own(world: &World<Self>) -> Box<dyn Agent> {
        Box::new(Own(Site::new(world.fabric.clone(), NodeId(0), Arc::clone(&world.memory))))
    }

    fn meanwhile(world: &World<Self>, node: u16, order: Order, body: impl FnOnce()) {
        from_a_thread(world.agent(node), order, body);
    }
}

/// No test, but what another process of this program is.
#[test]
fn be_an_agent() {
    let Some(what) = std::env::var_os("DRTM_AGENT") else { return };
    let what = what.into_string().expect("text");
    let [node, incarnation, addresses, mood, path] = what.splitn(5, ':').collect::<Vec<_>>()[..] else {
        panic!("node:incarnation:addresses:mood:path, not {what}")
    };
    let node = NodeId(node.parse().expect("a number"));
    let orders = UnixStream::connect(path).expect("the one that gives orders");
    let incarnation = incarnation.parse().expect("a number");
    let mood = NicMood(TcpMood::from_arguments(mood));
    let fabric = VerbsFabric::join(NoHtm, mood.config(Addresses::read(addresses), node, incarnation));
    let fabric = fabric.expect("the cluster");
    let memory = fresh(Region::anonymous(NoHtm, 1 << 20).expect("a region"));
    obey(orders, &fabric, node, memory, || fabric.leave())
}
