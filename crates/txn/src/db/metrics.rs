//! Publishing a database's figures to the `metrics` facade. It reads figures that exist anyway, and
//! only when called.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, gauge};

use super::Db;
use crate::{Config, Conflict, Error};

const COMMITTED: &str = "drtm_transactions_committed_total";
const GIVEN_UP: &str = "drtm_transactions_given_up_total";
const CONFLICTS: &str = "drtm_transactions_conflicts_total";
const HTM_TRANSACTIONS: &str = "drtm_htm_transactions_total";
const RECORDS: &str = "drtm_table_records";
const SNAPSHOTS: &str = "drtm_snapshots_open";
const OLDER_VERSIONS: &str = "drtm_older_versions_bytes";
const MEMORY: &str = "drtm_memory_bytes";
const MOST_MEMORY: &str = "drtm_memory_most_bytes";

impl<S: Config> Db<S> {
    /// Describes the figures of [`publish_metrics`](Self::publish_metrics) to the recorder of the
    /// crate `metrics`.
    ///
    /// # Example
    ///
    /// See [`publish_metrics`](Self::publish_metrics).
    pub fn describe_metrics(&self) {
        describe_counter!(COMMITTED, Unit::Count, "Transactions that committed");
        describe_counter!(GIVEN_UP, Unit::Count, "Transactions that their application gave up, or that failed");
        describe_counter!(CONFLICTS, Unit::Count, "Runs of transactions that could not go on beside others, by cause");
        describe_counter!(HTM_TRANSACTIONS, Unit::Count, "Htm transactions, by outcome");
        describe_gauge!(RECORDS, Unit::Count, "Records of a table, about as many as its rows");
        describe_gauge!(SNAPSHOTS, Unit::Count, "Snapshots that are open");
        describe_gauge!(OLDER_VERSIONS, Unit::Bytes, "Memory that holds what rows were, for snapshots");
        describe_gauge!(MEMORY, Unit::Bytes, "Memory that is taken");
        describe_gauge!(MOST_MEMORY, Unit::Bytes, "Memory that can be taken");
    }

    /// Passes all figures to the recorder of the crate `metrics`. Call it when they are needed:
    /// once before a scrape, or every few seconds. It does not disturb transactions.
    ///
    /// | name | kind | labels | what it is |
    /// |---|---|---|---|
    /// | `drtm_transactions_committed_total` | counter | | [`Stats::commits`](crate::Stats::commits) |
    /// | `drtm_transactions_given_up_total` | counter | | [`Stats::given_up`](crate::Stats::given_up) |
    /// | `drtm_transactions_conflicts_total` | counter | `cause`: a [`Conflict`]'s [name](Conflict::name) | [`Stats::conflicts`](crate::Stats::conflicts) |
    /// | `drtm_htm_transactions_total` | counter | `outcome`: `commit`, `fallback`, or why it was aborted: `conflict`, `capacity`, `system`, `explicit`, `lock_held`, `nested`, `panicked` | [`htm_stats`](Self::htm_stats) |
    /// | `drtm_table_records` | gauge | `table` | [`tables`](Self::tables), indexes included |
    /// | `drtm_snapshots_open` | gauge | | [`snapshot_count`](Self::snapshot_count) |
    /// | `drtm_older_versions_bytes` | gauge | | [`older_versions`](Self::older_versions) |
    /// | `drtm_memory_bytes`, `drtm_memory_most_bytes` | gauge | | [`memory`](Self::memory) |
    ///
    /// Each also has the label `database`, a number, since a process can have several databases.
    ///
    /// # Errors
    ///
    /// When the store is corrupt.
    ///
    /// # Example
    ///
    /// ```
    /// use drtm::{Db, Error};
    ///
    /// let db = Db::new()?;
    /// // The application has installed a recorder before, which an exporter of its choice provides.
    /// db.describe_metrics();
    /// db.transact(|_| Ok(()))?;
    /// db.publish_metrics()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn publish_metrics(&self) -> Result<(), Error> {
        let database = Label::new("database", self.inner.number.to_string());
        let alone = || vec![database.clone()];
        let with = |name: &'static str, value: &'static str| vec![database.clone(), Label::new(name, value)];

        let stats = self.stats();
        counter!(COMMITTED, alone()).absolute(stats.commits);
        counter!(GIVEN_UP, alone()).absolute(stats.given_up);
        for cause in Conflict::ALL {
            counter!(CONFLICTS, with("cause", cause.name())).absolute(stats.conflicts(cause));
        }
        let htm = self.htm_stats();
        let outcomes = [
            ("commit", htm.commits),
            ("fallback", htm.fallbacks),
            ("conflict", htm.conflict),
            ("capacity", htm.capacity),
            ("system", htm.system),
            ("explicit", htm.explicit),
            ("lock_held", htm.lock_held),
            ("nested", htm.nested),
            ("panicked", htm.panicked),
        ];
        for (outcome, count) in outcomes {
            counter!(HTM_TRANSACTIONS, with("outcome", outcome)).absolute(count);
        }
        for (table, records) in self.tables()? {
            gauge!(RECORDS, with("table", table)).set(records as f64);
        }
        gauge!(SNAPSHOTS, alone()).set(self.snapshot_count()? as f64);
        gauge!(OLDER_VERSIONS, alone()).set(self.older_versions() as f64);
        let memory = self.memory();
        gauge!(MEMORY, alone()).set(memory.total() as f64);
        gauge!(MOST_MEMORY, alone()).set(memory.most as f64);
        Ok(())
    }
}
