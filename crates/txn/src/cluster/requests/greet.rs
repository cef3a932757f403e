//! How nodes introduce themselves, and measure each other's clocks.

use drtm_rdma::{
    Cost, Fabric,
    rpc::{Decode, DecodeError, Encode, Reader},
};

use super::{Request, Serving};
use crate::{
    Config, Durability,
    cluster::{Refusal, shared::VERSION, wire::messages},
};

messages! {
    /// Introduces a node: what it believes the cluster to be.
    Hello<'a> { version: u32, engine: &'a str, protocol: &'a str, tables: &'a str, }
}

/// Where an owner's peers find its rows, if they look for them by themselves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct Welcome {
    /// The region of its memory.
    pub(in crate::cluster) region: u16,
    /// Its line: the snapshot number, and how many snapshots are open.
    pub(in crate::cluster) line: u64,
    /// When its log has what is written to it: `None` without a log.
    pub(in crate::cluster) durability: Option<Durability>,
    /// Its tables, but for those that peers do not reach.
    pub(in crate::cluster) tables: Vec<Option<u64>>,
}

impl Encode for Welcome {
    fn encode(&self, into: &mut Vec<u8>) {
        let durability = match self.durability {
            None | Some(Durability::None) => 0_u8,
            Some(Durability::Async) => 1,
            Some(Durability::Sync) => 2,
        };
        (self.region, self.line, (durability, self.tables.len() as u16)).encode(into);
        self.tables.iter().for_each(|table| table.encode(into));
    }
}

impl<'a> Decode<'a> for Welcome {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let (region, line, (durability, tables)): (u16, u64, (u8, u16)) = Decode::decode(from)?;
        let durability = match durability {
            0 => None,
            1 => Some(Durability::Async),
            2 => Some(Durability::Sync),
            _ => return Err(DecodeError::Invalid { what: "durability" }),
        };
        let tables = (0..tables).map(|_| Decode::decode(from)).collect::<Result<_, _>>()?;
        Ok(Self { region, line, durability, tables })
    }
}

/// Introduces the caller, which must believe the cluster to be what the node that serves does.
pub(in crate::cluster) enum Introduce {}

impl Request for Introduce {
    const NUMBER: u16 = 1;
    const COST: Option<Cost> = None;
    type Body<'a> = Hello<'a>;
    type Reply<'a> = Welcome;

    fn serve<'p, F: Fabric, S: Config<Engine = F::Engine>>(
        hello: Hello<'_>,
        Serving { worker, caller, .. }: Serving<'p, '_, F, S>,
    ) -> Result<Welcome, Refusal> {
        let node = &worker.node;
        if let (Some(access), Some(incarnation)) = (&node.home.access, worker.endpoint().presence(caller).here()) {
            access.meet(caller, incarnation.0);
        }
        let Hello { version, engine, protocol, tables } = hello;
        let is_alike =
            (version, engine, protocol, tables) == (VERSION, node.engine_name(), node.protocol.name, &node.described);
        if is_alike { Ok(node.welcome()) } else { Err(Refusal::Other) }
    }
}

/// Reads the clock of the node that serves, in nanoseconds.
pub(in crate::cluster) enum Clock {}

impl Request for Clock {
    const NUMBER: u16 = 21;
    const COST: Option<Cost> = None;
    type Body<'a> = ();
    type Reply<'a> = u64;

    fn serve<'p, F: Fabric, S: Config<Engine = F::Engine>>(
        (): (),
        Serving { worker, .. }: Serving<'p, '_, F, S>,
    ) -> Result<u64, Refusal> {
        Ok(worker.endpoint().now().nanos())
    }
}
