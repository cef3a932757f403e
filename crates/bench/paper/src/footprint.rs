//! Footprints of a workload's transactions, their commits included.

use std::time::{SystemTime, UNIX_EPOCH};

use drtm_drive::{Client, Error, Progress, Watched, Workload, load};
use drtm_htm::{Profile, Traced};
use drtm_txn::Builder;

/// The average footprint of one kind of transaction, its commit included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Footprint {
    pub(crate) transaction: &'static str,
    /// The number of transactions traced.
    pub(crate) count: u64,
    /// Bytes in the cache lines read by all of them.
    read: u64,
    written: u64,
    /// The number that do not fit into an htm transaction.
    pub(crate) too_large: u64,
}

impl Footprint {
    /// Returns the mean bytes in the cache lines that one transaction reads.
    pub(crate) fn read_bytes(&self) -> f64 {
        self.read as f64 / self.count as f64
    }

    pub(crate) fn write_bytes(&self) -> f64 {
        self.written as f64 / self.count as f64
    }
}

/// Runs `transactions` of a workload one after the other. Returns their footprints, and how many
/// would not fit into one htm transaction of a processor with this profile. Kinds that do not occur
/// are left out.
pub(crate) fn footprints<W: Workload>(
    workload: &W,
    transactions: u64,
    memory: u64,
    profile: Profile,
) -> Result<Vec<Footprint>, Error> {
    let db = Builder::new().memory(memory).build_with::<Watched>(Traced)?;
    let tables = workload.open(&db)?;
    let progress = Progress::new("loading", workload.pieces());
    load(workload, &db, tables, 1, || progress.step())?;
    let mut clients = workload.clients(&db, tables, 1)?;
    let kinds = <W::Client<'_, Watched>>::kinds();
    let none = |transaction: &&'static str| Footprint { transaction, count: 0, read: 0, written: 0, too_large: 0 };
    let mut footprints: Vec<Footprint> = kinds.iter().map(none).collect();
    let date = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let progress = Progress::new("looking", transactions);
    for number in 0..transactions {
        for client in &mut clients {
            let (done, trace) = Traced::trace(|| client.run_next(date + number));
            let (of_kind, set) = (&mut footprints[done?.kind], trace.working_set());
            of_kind.count += 1;
            of_kind.read += set.line_bytes_read() as u64;
            of_kind.written += set.line_bytes_written() as u64;
            of_kind.too_large += u64::from(!trace.fits(profile));
        }
        progress.step();
    }
    let violations = workload.check(&db, tables, &clients.iter().collect::<Vec<_>>())?;
    if let [first, ..] = violations.as_slice() {
        return Err(Error::Inconsistent { violations: violations.len(), first: first.clone() });
    }
    footprints.retain(|footprint| footprint.count > 0);
    Ok(footprints)
}
