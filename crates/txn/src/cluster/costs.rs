//! What transactions cost on a simulated machine, beside what their requests say: accesses of this
//! node's records, and what software does that hardware of HADES makes unnecessary.
//!
//! All of it is charged, and takes time only on a simulated cluster whose nodes are machines.

use drtm_kv::Handle;
use drtm_rdma::{Cost, Fabric, Overhead, machine::Software};

use super::{ClusterTx, coordinator::Coordinator};
use crate::Config;

/// An access of a record by software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    /// Of its version and lock.
    Check,
    Lock,
    Write,
}

impl<F: Fabric, S: Config<Engine = F::Engine>> Coordinator<'_, F, S> {
    /// Charges for an access of a record of this node, where no NIC of HADES does.
    pub(super) fn charge_access(&self, at: Handle, access: Access) {
        if !self.endpoint().is_simulated() || self.node.nic.is_some() {
            return;
        }
        let Some((begin, bytes)) = self.node.home.db.store.records().extent(at) else { return };
        let bytes = match access {
            Access::Read | Access::Write => bytes as u64,
            Access::Check | Access::Lock => 8,
        };
        let writes = matches!(access, Access::Lock | Access::Write);
        self.endpoint().charge(Cost::Access { at: begin.bytes(), bytes, writes });
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Charges for what `costs` says of rows, if this is simulated: it is told whether a row is
    /// another node's, and its bytes. Overheads are charged of rows that software keeps track of.
    fn charge_each(&self, rows: &[u32], costs: impl Fn(bool, u64) -> [(Overhead, u64); 4]) {
        let Some(state) = self.state.as_ref().filter(|_| self.worker.endpoint().is_simulated()) else { return };
        let nic = self.worker.node.nic.as_ref();
        for &row in rows {
            let is_other = state.node_of(row) != self.worker.id();
            let is_by_software = nic.is_none_or(|nic| nic.is_hybrid() && !is_other);
            let bytes = state.range_of(row).map_or(0, |value| value.length() as u64);
            for (of, cycles) in costs(is_other, bytes) {
                if of == Overhead::Body || is_by_software {
                    self.worker.endpoint().charge(Cost::Overhead(of, cycles));
                }
            }
        }
    }

    /// Charges for rows that were read.
    pub(super) fn charge_reads(&self, rows: &[u32]) {
        let Software { body, find, read, whole, whole_word, .. } = Software::COUNTED;
        self.charge_each(rows, |is_other, bytes| {
            let checking = if is_other { whole + whole_word * bytes.div_ceil(8) } else { 0 };
            let finding = if is_other { find } else { 0 };
            [
                (Overhead::Body, body),
                (Overhead::Body, finding),
                (Overhead::ManageSets, read),
                (Overhead::ReadAtomicity, checking),
            ]
        });
    }

    /// Charges for a row that is written.
    pub(super) fn charge_write(&self, row: u32) {
        let Software { body_writes, write, version, .. } = Software::COUNTED;
        let costs = [
            (Overhead::Body, body_writes),
            (Overhead::ManageSets, write),
            (Overhead::UpdateVersion, version),
            (Overhead::ReadAtomicity, 0),
        ];
        self.charge_each(&[row], |_, _| costs);
    }
}
