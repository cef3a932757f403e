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

/// The place of each process of a cluster on TCP.
#[derive(Debug)]
pub struct Places {
    addresses: Vec<SocketAddr>,
    /// Empty on the loopback.
    namespaces: Vec<String>,
}

impl Places {
    /// Chooses places for so many nodes.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no free ports, or fewer namespaces than nodes.
    pub fn new(nodes: u16) -> Result<Self, Error> {
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

    /// Returns where each node listens.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns whether each node has a link of its own, which can be [set](Self::set_link) down.
    #[must_use]
    pub fn have_links(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// Sets the link of a node up, or down: then it reaches no other node, and none reaches it.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no namespaces, or the system refuses.
    pub fn set_link(&self, node: u16, state: &str) -> Result<(), Error> {
        // Links are numbered from one, at the side of the bridge.
        let link = format!("drtm{}", node + 1);
        let status = Command::new("ip").args(["link", "set", "dev", &link, state]).status().map_err(failed)?;
        if status.success() { Ok(()) } else { Err(failed(format!("the link {link} cannot be set {state}"))) }
    }

    /// Returns this program, to be started at the place of a node.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn program(&self, node: u16) -> io::Result<Command> {
        let program = env::current_exe()?;
        let Some(process) = self.namespaces.get(usize::from(node)) else { return Ok(Command::new(program)) };
        let mut command = Command::new("nsenter");
        command.args(["--net", "--target", process, "--"]).arg(program);
        Ok(command)
    }
}
