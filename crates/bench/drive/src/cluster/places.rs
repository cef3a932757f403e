//! Where the processes of a cluster run: on the loopback, or each in a network namespace of its
//! own.

use std::{
    env, io,
    net::{Ipv4Addr, SocketAddr},
    process::Command,
};

use super::pipes::failed;
use crate::{Error, loopback};

/// Names processes, separated by commas, in whose network namespaces the nodes run. The address of
/// each is [`FIRST`] or one of those after it. `scripts/netns/test` makes them.
const NAMESPACES: &str = "DRTM_NAMESPACES";

/// The address of the first namespace, and the port of all nodes there.
const FIRST: (Ipv4Addr, u16) = (Ipv4Addr::new(10, 77, 0, 2), 7000);

/// The place of each node.
pub(super) struct Places {
    pub(super) addresses: Vec<SocketAddr>,
    /// Empty on the loopback.
    namespaces: Vec<String>,
}

impl Places {
    pub(super) fn new(nodes: u16) -> Result<Self, Error> {
        let Ok(named) = env::var(NAMESPACES) else {
            return Ok(Self { addresses: loopback(nodes)?, namespaces: Vec::new() });
        };
        let namespaces: Vec<_> = named.split(',').map(String::from).collect();
        if namespaces.len() < usize::from(nodes) {
            return Err(failed(format!("{NAMESPACES} names {} processes for {nodes} nodes", namespaces.len())));
        }
        let address = |node: u16| (Ipv4Addr::from(u32::from(FIRST.0) + u32::from(node)), FIRST.1).into();
        Ok(Self { addresses: (0..nodes).map(address).collect(), namespaces })
    }

    /// Returns this program, to be started at the place of a node.
    pub(super) fn program(&self, node: u16) -> io::Result<Command> {
        let program = env::current_exe()?;
        let Some(process) = self.namespaces.get(usize::from(node)) else { return Ok(Command::new(program)) };
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", process, "--"]).arg(program);
        Ok(command)
    }
}
