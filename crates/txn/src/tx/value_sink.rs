//! Buffers for the projected part of a value that is read.

use std::marker::PhantomData;

use drtm_kv::ValueSink;

use crate::{Codec, memory::arena::Values, tx::projection::Projection};

/// The end of a transaction's values, as a buffer for one more.
#[derive(Debug)]
pub(crate) struct ArenaEnd<'v> {
    pub(crate) values: &'v mut Values,
    pub(crate) start: usize,
}

impl ValueSink for ArenaEnd<'_> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.values.room(self.start, length)
    }
}

/// A buffer for a value of a codec, whose length may be fixed.
#[derive(Debug)]
pub(crate) struct CodecSink<'r, C, R> {
    pub(crate) room: &'r mut R,
    codec: PhantomData<fn() -> C>,
}

impl<'r, C: Codec, R: ValueSink> CodecSink<'r, C, R> {
    #[inline(always)]
    pub(crate) fn new(room: &'r mut R) -> Self {
        Self { room, codec: PhantomData }
    }
}

impl<C: Codec, R: ValueSink> ValueSink for CodecSink<'_, C, R> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        self.room.of(length)
    }

    #[inline(always)]
    fn whole(&self) -> Option<usize> {
        C::SIZE
    }
}

/// A buffer for the projected part of a value, whose length may be fixed.
#[derive(Debug)]
pub(crate) struct ProjectedSink<'r> {
    value: &'r mut Values,
    values: &'r mut Values,
    start: usize,
    wanted: &'r Projection,
    whole: Option<usize>,
}

impl<'r> ProjectedSink<'r> {
    #[inline(always)]
    pub(crate) fn new(
        value: &'r mut Values,
        values: &'r mut Values,
        wanted: &'r Projection,
        whole: Option<usize>,
    ) -> Self {
        let start = values.len();
        Self { value, values, start, wanted, whole }
    }
}

impl ValueSink for ProjectedSink<'_> {
    #[inline(always)]
    fn of(&mut self, length: usize) -> &mut [u8] {
        let length = self.wanted.span.at_most(length);
        if self.wanted.is_to_change { self.values.room(self.start, length) } else { self.value.of(length) }
    }

    #[inline(always)]
    fn skipped(&self) -> usize {
        self.wanted.span.skipped as usize
    }

    #[inline(always)]
    fn whole(&self) -> Option<usize> {
        self.whole
    }
}
