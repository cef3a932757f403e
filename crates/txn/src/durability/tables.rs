//! The catalog of a log: the result of its changes, beginning with the catalog of a checkpoint.
//!
//! Changes are ordered, since each is the only one of its epoch. A checkpoint has the catalog of
//! some moment while it was made. So it may already include changes of epochs up to its end. These
//! are applied again, with the same result, since each change states the new state and not a
//! difference. After that, a change that does not fit is damage.

use super::format::{CatalogChange, TableShape};

/// The tables of a log.
#[derive(Debug, Default)]
pub(super) struct Tables {
    /// By their identities, which are given out in ascending order.
    all: Vec<Known>,
    next: u16,
    /// The last note.
    note: Option<Vec<u8>>,
}

/// What changes say of a table.
#[derive(Debug, Default)]
struct Known {
    /// The table and the names of its indexes, while it exists.
    standing: Option<(TableShape, Vec<String>)>,
    /// The epoch in which it was dropped.
    dropped: Option<u64>,
    /// The epoch in which all its rows were removed last.
    cleared: Option<u64>,
    /// Whether a change names it, but a checkpoint lacks it: it must have been dropped while the
    /// checkpoint was made.
    is_lacking: bool,
}

impl Tables {
    /// Applies a change of an epoch. With `may_be_known` a checkpoint may include it already.
    /// Returns whether it fits.
    pub(super) fn apply(&mut self, change: CatalogChange, epoch: u64, may_be_known: bool) -> bool {
        let Some(id) = change.table() else {
            if let CatalogChange::Noted(note) = change {
                self.note = Some(note);
            }
            return true;
        };
        self.next = self.next.max(id.saturating_add(1));
        if self.all.len() <= id.into() {
            self.all.resize_with(usize::from(id) + 1, Known::default);
        }
        let known = &mut self.all[usize::from(id)];
        if known.dropped.is_some() {
            return false;
        }
        let Some((shape, indexes)) = &mut known.standing else {
            return known.apply_to_none(change, epoch, may_be_known);
        };
        let has = |indexes: &[String], name: &String| indexes.contains(name);
        match change {
            CatalogChange::Table(_, as_created) => may_be_known && shape.is_as(&as_created),
            CatalogChange::TableRenamed(_, name) => {
                shape.name = name;
                true
            }
            CatalogChange::TableCleared(_) => {
                known.cleared = Some(epoch);
                true
            }
            CatalogChange::TableDropped(_) => {
                (known.standing, known.dropped) = (None, Some(epoch));
                true
            }
            CatalogChange::Index(_, name) => {
                let is_there = has(indexes, &name);
                if !is_there {
                    indexes.push(name);
                }
                may_be_known || !is_there
            }
            CatalogChange::IndexDropped(_, name) => {
                let is_there = has(indexes, &name);
                indexes.retain(|one| *one != name);
                may_be_known || is_there
            }
            // It is of no table.
            CatalogChange::Noted(_) => true,
        }
    }

    /// Returns the last note. `None` if there is none.
    pub(super) fn note(&self) -> Option<&Vec<u8>> {
        self.note.as_ref()
    }

    /// Returns whether all changes fit together.
    pub(super) fn are_whole(&self) -> bool {
        !self.all.iter().any(|known| known.is_lacking)
    }

    /// Returns the epoch in which a table was dropped.
    pub(super) fn dropped_in(&self, table: u16) -> Option<u64> {
        self.all.get(usize::from(table))?.dropped
    }

    /// Returns whether rows of an epoch are in no table: it was dropped, or they were removed with
    /// all others.
    pub(super) fn lack(&self, table: u16, epoch: u64) -> bool {
        let is_lost = |known: &Known| known.dropped.is_some() || known.cleared.is_some_and(|cleared| epoch < cleared);
        self.all.get(usize::from(table)).is_some_and(is_lost)
    }

    /// Returns an identity above those of all tables, present or dropped.
    pub(super) fn next(&self) -> u16 {
        self.next
    }

    /// Returns the existing tables, and the names of their indexes.
    pub(super) fn standing(&self) -> impl Iterator<Item = (u16, &(TableShape, Vec<String>))> {
        (0..).zip(&self.all).filter_map(|(id, known)| Some((id, known.standing.as_ref()?)))
    }
}

impl Known {
    /// Applies a change of a table that does not exist.
    fn apply_to_none(&mut self, change: CatalogChange, epoch: u64, may_be_known: bool) -> bool {
        match change {
            CatalogChange::Table(_, shape) => {
                self.standing = Some((shape, Vec::new()));
                !self.is_lacking
            }
            CatalogChange::TableDropped(_) => {
                (self.is_lacking, self.dropped) = (false, Some(epoch));
                may_be_known
            }
            CatalogChange::TableRenamed(..)
            | CatalogChange::TableCleared(_)
            | CatalogChange::Index(..)
            | CatalogChange::IndexDropped(..) => {
                self.is_lacking = true;
                may_be_known
            }
            CatalogChange::Noted(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    fn shape(name: &str) -> TableShape {
        let (key, codec, types) = Default::default();
        let name = name.to_owned();
        TableShape { name, is_ordered: false, key_size: None, value_size: None, key, codec, types }
    }

    /// Makes a change that fits from some numbers, given the identity that the next table would
    /// get. `None` if there is no such change.
    fn change(tables: &Tables, (kind, which, name): (u8, usize, u8)) -> Option<CatalogChange> {
        let name = format!("{name}");
        if kind == 0 {
            return Some(CatalogChange::Table(tables.next, shape(&name)));
        }
        if kind == 6 {
            return Some(CatalogChange::Noted(vec![which as u8; 3]));
        }
        let (id, (_, indexes)) = tables.standing().nth(which % tables.standing().count().max(1))?;
        let has_it = indexes.contains(&name);
        match kind {
            1 => Some(CatalogChange::TableDropped(id)),
            5 => Some(CatalogChange::TableCleared(id)),
            2 => Some(CatalogChange::TableRenamed(id, name)),
            3 if !has_it => Some(CatalogChange::Index(id, name)),
            _ if has_it => Some(CatalogChange::IndexDropped(id, name)),
            _ => None,
        }
    }

    type Left = (BTreeMap<u16, (TableShape, BTreeSet<String>)>, u16, Option<Vec<u8>>);

    fn left(tables: Tables) -> Left {
        let (next, note) = (tables.next, tables.note.clone());
        let all =
            tables.standing().map(|(id, (shape, indexes))| (id, (shape.clone(), indexes.iter().cloned().collect())));
        (all.collect(), next, note)
    }

    proptest! {
        /// A checkpoint has the catalog of any moment after its first epoch, and the log has all
        /// changes since that epoch.
        #[test]
        fn changes_that_a_checkpoint_has_lead_to_the_same_again(
            steps in prop::collection::vec((0..7_u8, any::<usize>(), 0..3_u8), 0..40),
            since: prop::sample::Index,
            taken: prop::sample::Index,
            durable: prop::sample::Index,
        ) {
            let (mut tables, mut changes) = (Tables::default(), Vec::new());
            for step in steps {
                if let Some(change) = change(&tables, step) {
                    prop_assert!(tables.apply(change.clone(), changes.len() as u64 + 1, false), "{change:?}");
                    changes.push(change);
                }
            }
            let mut order = [since, taken, durable].map(|index| index.index(changes.len() + 1));
            order.sort_unstable();
            let [since, taken, durable] = order;
            let replayed = |until: usize| {
                let mut tables = Tables::default();
                for (change, epoch) in changes[..until].iter().zip(1..) {
                    prop_assert!(tables.apply(change.clone(), epoch, false));
                }
                Ok(tables)
            };
            let of_checkpoint = replayed(taken)?;
            let standing = |known| Known { dropped: None, cleared: None, is_lacking: false, ..known };
            let all = of_checkpoint.all.into_iter().map(standing).collect();
            let mut tables = Tables { all, next: of_checkpoint.next, note: of_checkpoint.note };
            for (change, epoch) in changes[since..durable].iter().zip(since as u64 + 1..) {
                prop_assert!(tables.apply(change.clone(), epoch, epoch <= taken as u64), "{change:?}");
            }
            prop_assert!(tables.are_whole());
            prop_assert_eq!(left(tables), left(replayed(durable)?));
        }
    }

    #[test]
    fn changes_that_contradict_each_other_are_noticed() {
        let created = || CatalogChange::Table(3, shape("a"));
        let mut tables = Tables::default();
        assert!(tables.apply(created(), 1, false));
        assert!(!tables.apply(created(), 2, false), "it is there");
        assert!(!tables.apply(CatalogChange::TableDropped(4), 3, false), "it never was");
        assert!(!tables.apply(CatalogChange::IndexDropped(3, "x".to_owned()), 4, false));
        assert!(tables.apply(CatalogChange::TableDropped(3), 5, false));
        assert!(!tables.apply(created(), 6, true), "no identity is used twice");
        assert_eq!((tables.next(), tables.dropped_in(3), tables.dropped_in(5)), (5, Some(5), None));
        // Rows are removed up to the epoch of the last removal of all.
        let mut tables = Tables::default();
        assert!(tables.apply(created(), 1, false));
        assert!([4, 9].into_iter().all(|epoch| tables.apply(CatalogChange::TableCleared(3), epoch, false)));
        assert_eq!([3, 4, 8, 9, 10].map(|epoch| tables.lack(3, epoch)), [true, true, true, false, false]);
        // A checkpoint may lack a table that was dropped while it was made, and no other.
        let mut tables = Tables::default();
        assert!(tables.apply(CatalogChange::TableRenamed(7, "b".to_owned()), 1, true));
        assert!(!tables.are_whole());
        assert!(tables.apply(CatalogChange::TableDropped(7), 2, true) && tables.are_whole());
    }
}
