//! Ranges of rows that a transaction fetches before it runs. Their owners send the rows, whatever
//! the protocol. Rows that were found so have no lease: the commit looks at them again.

use drtm_rdma::{Fabric, Phase, Port};

use super::Sets;
use crate::{
    Config, Conflict, Error, KeyRange, Sorted,
    cluster::{ClusterTx, ask::Asks, ranges::FetchedRange, state::State},
    tx::position::Way,
};

impl<F: Fabric, S: Config<Engine = F::Engine>> Sets<'_, '_, F, S> {
    /// Declares a range of rows that is going to be read.
    ///
    /// # Errors
    ///
    /// When no node owns such rows, or a key is too long.
    pub fn range<R: Sorted>(&mut self, rows: R, range: impl KeyRange<R::Key>) -> Result<(), Error> {
        let number = self.tx.range_to_fetch(rows, range, Way::Up)?;
        self.tx.state().ranges[number].most = usize::MAX;
        Ok(())
    }
}

impl<F: Fabric, S: Config<Engine = F::Engine>> ClusterTx<'_, F, S> {
    /// Reads ranges, all at the same time, as far as they are wanted. Rows that are locked are
    /// waited for, so often.
    pub(in crate::cluster) async fn fetch_ranges(&mut self, patience: u32) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            let asks = self.state().scans();
            let outcome = self.round(Phase::Execute, &asks).await;
            if asks.is_empty() || outcome.is_err() && !self.pause_before_retry(&outcome, &mut tries, patience).await {
                return outcome;
            }
        }
    }
}

impl<P: Port> State<'_, P> {
    /// Returns requests for rows of all ranges, as far as they are wanted and not known.
    pub(in crate::cluster) fn scans(&mut self) -> Asks {
        let mut asks = Asks::new();
        for number in 0..self.ranges.len() {
            let FetchedRange { table, bounds, way, reach, most, is_final, ref spans, .. } = self.ranges[number];
            if spans.is_empty() {
                self.ranges[number].spans = self.add_spans(table, bounds, way, reach, (most, is_final));
            }
            asks.extend(self.first_of(number, most).1);
        }
        asks
    }

    /// Returns the first rows of a range that are known, and requests for those that are missing.
    fn first_of(&mut self, number: usize, limit: usize) -> (Vec<u32>, Asks) {
        let FetchedRange { table, bounds, way, ref spans, .. } = self.ranges[number];
        self.first_rows(table, bounds, way, spans.clone(), limit)
    }

    /// Returns the first rows of a range for the body. What was not fetched of them will be in the
    /// next run.
    pub(in crate::cluster) fn rows_of_range(&mut self, number: usize, limit: usize) -> Result<Vec<u32>, Error> {
        let is_read = !self.ranges[number].spans.is_empty();
        let (found, rest) = self.first_of(number, limit);
        if is_read && rest.is_empty() {
            return Ok(found);
        }
        let most = &mut self.ranges[number].most;
        // If as many were fetched, the body itself has removed some.
        *most = if is_read && *most >= limit { most.saturating_add(limit) } else { limit.max(*most) };
        self.is_outside = true;
        Err(Conflict::Unfetched.into())
    }
}
