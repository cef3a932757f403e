//! Reading rows of many keys: rows are prefetched while others are read, and the work that all keys
//! share is done once.

use std::ops::ControlFlow;

use drtm_htm::Engine;
use drtm_kv::{AsOf, ForHolder, HashTable, KvTable, PrefetchMask, Visibility, Whereabouts};

use super::{
    Exclusive, Mode,
    drive::{Present, Reader, Snapshot},
    read::{Group, Row},
};
use crate::{
    AsKey, Codec, CodecError, Config, Error, Flow, Key, Stored,
    commit::{read_set::ReadSet, write_set::WriteTarget},
    memory::{arena::Arena, storage::Storage},
    schema::{catalog::Opened, table::Reach},
    tx::{
        located::Located,
        projection::{ByteRange, Projection},
        state::TxState,
        value_sink::ProjectedSink,
    },
};

impl<S: Config, M: Mode> Exclusive<'_, S, M> {
    pub(crate) fn get_many<R: Stored>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
    ) -> Result<Vec<Option<R::Row>>, Error> {
        let mut values = Vec::new();
        self.each_of(rows, keys, |part| {
            values.push(part.map(|part| rows.decode(part)).transpose()?);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(values)
    }

    #[inline]
    pub(crate) fn view_many<R: Stored, F: Flow>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
        mut visit: impl FnMut(Option<R::View<'_>>) -> F,
    ) -> Result<(), Error> {
        self.each_of(rows, keys, |part| Ok(visit(part.map(|part| rows.show(part)).transpose()?).flow()))
    }

    /// Shows the projected parts of the rows of several keys.
    #[inline(always)]
    fn each_of<R: Stored>(
        &mut self,
        rows: R,
        keys: impl IntoIterator<Item = impl AsKey<R::Key>>,
        mut visit: impl FnMut(Option<&[u8]>) -> Result<ControlFlow<()>, CodecError>,
    ) -> Result<(), Error> {
        let opened = self.opened(rows.table())?;
        let table = &opened.name;
        let mut visit = |part: Option<&[u8]>| visit(part).map_err(|source| Error::Codec { table: table.get(), source });
        if !R::Key::FITS {
            for key in keys {
                let found = self.find(rows, key, |part| Ok(visit(Some(part))))?;
                if found.unwrap_or_else(|| visit(None))?.is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let (span, lines) = (rows.wanted().span, rows.lines());
        let mut keys = keys.into_iter().map(|key| key.packed());
        let mut group = Group::of(&mut keys);
        self.ask_unless_asked::<R::Kind>(opened, group.words(), 0, lines);
        while group.count > 0 {
            let next = Group::of(&mut keys);
            self.ask_unless_asked::<R::Kind>(opened, next.words(), group.count, lines);
            let mut rest = group.words();
            while !rest.is_empty() {
                let (seen, flow) = self.run_of_keys::<R::Codec, R::Kind>(opened, rest, span, &mut visit)?;
                if flow.is_break() {
                    return Ok(());
                }
                rest = &rest[seen..];
                let [word, behind @ ..] = rest else { break };
                let db = self.db;
                if R::Kind::HASHED && db.catalog.flush_prefetch(&mut self.state().located, opened.number, *word) {
                    continue;
                }
                if visit(self.bytes_slow::<R::Kind>(opened, *word, span)?)?.is_break() {
                    return Ok(());
                }
                rest = behind;
            }
            group = next;
        }
        Ok(())
    }

    /// Prefetches rows, unless they were: `behind` of the rows that were located are still to be
    /// read.
    #[inline(always)]
    fn ask_unless_asked<O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        words: &[u64],
        behind: usize,
        lines: &'static PrefetchMask,
    ) {
        if let Some(first) = words.first()
            && !(O::HASHED && self.state().located.has(opened.number, behind, *first))
        {
            self.prefetch_words::<O>(opened, words, lines);
        }
    }

    /// Shows rows while none needs the slow path: each is where it was located, and has the
    /// requested part. Returns how many.
    #[inline(always)]
    fn run_of_keys<C: Codec, O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        words: &[u64],
        span: ByteRange,
        visit: &mut impl FnMut(Option<&[u8]>) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(usize, ControlFlow<()>), Error> {
        let Storage::HashOfWords(table) = &opened.storage else { return Ok((0, ControlFlow::Continue(()))) };
        let past = self.past();
        if !O::HASHED || !(past.is_some() || self.is_plain()) {
            return Ok((0, ControlFlow::Continue(())));
        }
        let TxState { reads: ReadSet { records, next_check, .. }, arena, located, writes, holder, .. } = self.state();
        match past {
            Some(before) => {
                let reader = &mut Snapshot { table: &opened.name };
                run_located::<C, _, _>(
                    (opened.number, table),
                    words,
                    (AsOf::new(before), reader),
                    (located, arena, span),
                    visit,
                )
            }
            None => {
                let reader = &mut Present { records, writes, next_check: *next_check };
                run_located::<C, _, _>(
                    (opened.number, table),
                    words,
                    (ForHolder(*holder), reader),
                    (located, arena, span),
                    visit,
                )
            }
        }
    }

    /// Reads the requested part of a row by the slow path.
    #[inline(never)]
    fn bytes_slow<O: Reach>(
        &mut self,
        opened: &Opened<S::Engine>,
        word: u64,
        span: ByteRange,
    ) -> Result<Option<&[u8]>, Error> {
        let (near, wanted) = (self.located::<O>(opened, word), &Projection::part_to_read(span));
        let Row { found, record } = self.row_of_key::<_, O>(opened, word, near, wanted)?;
        let Some(found) = found else { return Ok(None) };
        if wanted.is_whole() || !matches!(record, Some(WriteTarget::Written(_))) {
            return Ok(Some(Self::bytes(self.state(), found)));
        }
        // The write set has only the whole value.
        let Some(found) = self.row_of_key::<_, O>(opened, word, near, &Projection::TO_READ)?.found else {
            return Ok(None);
        };
        Ok(Some(Self::bytes(self.state(), found).get(8 * span.skipped as usize..).unwrap_or(&[])))
    }
}

/// Shows rows while each is where it was located, and none needs the slow path. Returns how many.
#[inline(never)]
fn run_located<C: Codec, V: Visibility + Copy, E: Engine>(
    (number, table): (u16, &HashTable<E>),
    words: &[u64],
    (view, reader): (V, &mut impl Reader<V>),
    (located, arena, span): (&mut Located, &mut Arena, ByteRange),
    visit: &mut impl FnMut(Option<&[u8]>) -> Result<ControlFlow<()>, Error>,
) -> Result<(usize, ControlFlow<()>), Error> {
    let Arena { value, values, .. } = arena;
    let wanted = Projection::part_to_read(span);
    let (mut seen, mut flow) = (0, ControlFlow::Continue(()));
    for (word, entry) in words.iter().zip(located.ahead(number)) {
        let Whereabouts::Record(at) = entry.at else { break };
        if entry.word != *word {
            break;
        }
        let room = &mut ProjectedSink::new(value, values, &wanted, C::SIZE);
        let Some(found) = table.read_at(at, *word, view, room) else { break };
        let Ok(true) = reader.take(found) else { break };
        seen += 1;
        flow = visit(Some(value.bytes()))?;
        if flow.is_break() {
            break;
        }
    }
    located.pass(number, seen);
    Ok((seen, flow))
}
