//! What all transactions of a program share, at one node of a cluster.

use std::sync::OnceLock;

use drtm_rdma::Fabric;

use super::{
    super::{Node, Worker, shared::Shared},
    progress::Progress,
};
use crate::{
    ChoppedError, Config, Error,
    chopped::draft::{Analysed, Tables},
};

/// A program, before and after it is registered.
pub(super) struct Room<F: Fabric, S: Config<Engine = F::Engine>> {
    pub(super) node: Node<F, S>,
    pub(super) progress: Progress,
    analysed: OnceLock<Analysed>,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Room<F, S> {
    pub(super) fn new(node: &Node<F, S>, progress: Progress) -> Self {
        Self { node: node.clone(), progress, analysed: OnceLock::new() }
    }

    pub(super) fn register(&self, analysed: Analysed) {
        self.analysed.get_or_init(|| analysed);
    }

    /// Returns the program, as it was registered.
    ///
    /// # Errors
    ///
    /// [`ChoppedError::NotRegistered`].
    pub(super) fn analysed(&self) -> Result<&Analysed, Error> {
        let not_registered = || ChoppedError::NotRegistered { program: self.progress.program.to_owned() };
        self.analysed.get().ok_or_else(|| not_registered().into())
    }

    /// Checks that a worker is one of the node that the program was registered at.
    ///
    /// # Errors
    ///
    /// [`Error::OtherDatabase`].
    pub(super) fn check(&self, worker: &Worker<'_, F, S>) -> Result<(), Error> {
        if self.node.is_of(worker) { Ok(()) } else { Err(Error::OtherDatabase) }
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Tables for Shared<F, S> {
    fn named(&self, name: &str) -> Option<u16> {
        (0..self.home.tables.len() as u16).find(|table| self.name_of(*table) == name)
    }

    fn name_of(&self, table: u16) -> &'static str {
        let served = self.home.tables.get(usize::from(table));
        served.and_then(|served| self.home.db.catalog.get(served.number)).map_or("", |opened| opened.name.get())
    }
}
