//! What chopped transactions have left: rows of tables that each program has for itself.
//!
//! The rest of a transaction is a row, which its pieces write and its last one removes. So it is in
//! the log together with the effects of each piece, and checkpoints and backups have it.

use drtm_htm::Engine;
use drtm_kv::KvError;

use crate::schema::catalog::Catalog;

/// The names of the tables of a program begin so: one has the rest of its transactions, the other
/// additions that are not published yet.
pub(crate) const REMAINDERS: &str = "chopped transactions of ";
pub(crate) const ADDITIONS: &str = "deferred additions of ";

/// Returns the programs that have left something.
pub(crate) fn programs<E: Engine>(catalog: &Catalog<E>) -> Result<Vec<String>, KvError> {
    let mut programs = Vec::new();
    for (_, table) in catalog.all() {
        let name = table.name.get();
        if let Some(program) = name.strip_prefix(REMAINDERS).or_else(|| name.strip_prefix(ADDITIONS))
            && table.storage.records()? > 0
        {
            programs.push(program.to_owned());
        }
    }
    programs.sort_unstable();
    programs.dedup();
    Ok(programs)
}
