//! Copying bytes of words, two words per instruction. Not used under model checking, whose words
//! are larger.

use std::arch::{asm, x86_64::__m128i};

use crate::{Word, sync::Ordering::Relaxed};

/// The number of bytes that one instruction copies.
pub(crate) const PIECE: usize = 16;

/// The number of bytes that one iteration copies, by four instructions.
const TURN: usize = 4 * PIECE;

/// The number of bytes that are copied at either end if there are too few for an iteration.
const PAIR: usize = 2 * PIECE;

/// Reads a piece of words, with relaxed loads.
///
/// # Safety
///
/// The piece lies within words.
#[inline(always)]
unsafe fn load_piece(from: *const u8) -> [u8; PIECE] {
    let piece: __m128i;
    // SAFETY: the caller guarantees that the piece lies within words, which may be read at any
    // time. The instruction reads each byte once, and may be split. It is equivalent to relaxed
    // atomic loads of the words that it touches, and a choice among their bytes, in assembly. It is
    // not `pure`, so it stays between its fences.
    unsafe {
        asm!("movdqu {piece}, [{from}]", piece = out(xmm_reg) piece, from = in(reg) from,
            options(readonly, nostack, preserves_flags));
    }
    // SAFETY: both types are sixteen bytes, for which every bit pattern is valid.
    unsafe { std::mem::transmute::<__m128i, [u8; PIECE]>(piece) }
}

/// Reads the pieces of one iteration.
///
/// # Safety
///
/// They lie within words.
#[inline(always)]
unsafe fn load_turn(from: *const u8) -> [u8; TURN] {
    let (first, second, third, fourth): (__m128i, __m128i, __m128i, __m128i);
    // SAFETY: as for a piece, four times.
    unsafe {
        asm!(
            "movdqu {first}, [{from}]", "movdqu {second}, [{from} + 16]",
            "movdqu {third}, [{from} + 32]", "movdqu {fourth}, [{from} + 48]",
            first = out(xmm_reg) first, second = out(xmm_reg) second, third = out(xmm_reg) third,
            fourth = out(xmm_reg) fourth, from = in(reg) from, options(readonly, nostack, preserves_flags)
        );
    }
    // SAFETY: both types are sixty-four bytes, for which every bit pattern is valid.
    unsafe { std::mem::transmute::<[__m128i; 4], [u8; TURN]>([first, second, third, fourth]) }
}

/// Writes two words, with relaxed stores.
///
/// # Safety
///
/// `to` is the beginning of one of two adjacent words.
#[inline(always)]
unsafe fn store_piece(to: *mut u8, piece: [u8; PIECE]) {
    // SAFETY: both types are sixteen bytes, for which every bit pattern is valid.
    let piece = unsafe { std::mem::transmute::<[u8; PIECE], __m128i>(piece) };
    // SAFETY: the caller guarantees the place. Words are atomics: any thread may write them at any
    // time. The instruction may be split, but into no parts smaller than an aligned word. So it is
    // equivalent to two relaxed atomic stores.
    unsafe {
        asm!("movdqu [{to}], {piece}", piece = in(xmm_reg) piece, to = in(reg) to, options(nostack, preserves_flags));
    }
}

/// Writes eight words, with relaxed stores.
///
/// # Safety
///
/// `to` is the beginning of the first of eight adjacent words.
#[inline(always)]
unsafe fn store_turn(to: *mut u8, turn: [u8; TURN]) {
    // SAFETY: both types are sixty-four bytes, for which every bit pattern is valid.
    let [first, second, third, fourth] = unsafe { std::mem::transmute::<[u8; TURN], [__m128i; 4]>(turn) };
    // SAFETY: as for a piece, four times.
    unsafe {
        asm!(
            "movdqu [{to}], {first}", "movdqu [{to} + 16], {second}",
            "movdqu [{to} + 32], {third}", "movdqu [{to} + 48], {fourth}",
            first = in(xmm_reg) first, second = in(xmm_reg) second, third = in(xmm_reg) third,
            fourth = in(xmm_reg) fourth, to = in(reg) to, options(nostack, preserves_flags)
        );
    }
}

/// Copies the first bytes of words: as many as `into` has, which are at least a [`PIECE`]. Panics
/// when the words have fewer.
///
/// The bytes behind the last whole iteration or piece are copied by one that overlaps with it, so
/// that they need not be counted.
#[inline(always)]
pub(crate) fn load_bytes(words: &[Word], into: &mut [u8]) {
    let length = into.len();
    assert!(length >= PIECE && length <= size_of_val(words), "{length} bytes of {} words", words.len());
    let from = words.as_ptr().cast::<u8>();
    // SAFETY: for both closures: what is copied to a part of `into` is at the same offset from
    // `from`. So it is among the words' first `length` bytes.
    let piece = |at| unsafe { load_piece(from.wrapping_add(at)) };
    // SAFETY: as above.
    let turn = |at| unsafe { load_turn(from.wrapping_add(at)) };
    if length >= TURN {
        let (turns, rest) = into.as_chunks_mut();
        turns.iter_mut().enumerate().for_each(|(count, into)| *into = turn(count * TURN));
        if !rest.is_empty()
            && let Some(ending) = into.last_chunk_mut()
        {
            *ending = turn(length - TURN);
        }
        return;
    }
    if length >= PAIR {
        for at in [0, length - PAIR] {
            let (pieces, _) = into[at..].as_chunks_mut();
            (pieces[0], pieces[1]) = (piece(at), piece(at + PIECE));
        }
        return;
    }
    if let Some(beginning) = into.first_chunk_mut() {
        *beginning = piece(0);
    }
    if let Some(ending) = into.last_chunk_mut() {
        *ending = piece(length - PIECE);
    }
}

/// Copies bytes, at least a [`PIECE`], to the first words. The rest of the last one becomes zero.
/// Panics when they do not fit.
///
/// Whole words are copied as by [`load_bytes`].
#[inline(always)]
pub(crate) fn store_bytes(words: &[Word], from: &[u8]) {
    let length = from.len();
    assert!(length >= PIECE && length <= size_of_val(words), "{length} bytes in {} words", words.len());
    let to = words.as_ptr().cast::<u8>().cast_mut();
    let (whole, last) = from.split_at(length / 8 * 8);
    let end = whole.len();
    // SAFETY: for both closures: what is copied of a part of `whole` is at the same offset from
    // `to`. So it is among the words' first `length` bytes, and begins at a multiple of a word.
    let piece = |at, piece: &_| unsafe { store_piece(to.wrapping_add(at), *piece) };
    // SAFETY: as above.
    let turn = |at, turn: &_| unsafe { store_turn(to.wrapping_add(at), *turn) };
    if end >= TURN {
        let (turns, rest) = whole.as_chunks();
        turns.iter().enumerate().for_each(|(count, from)| turn(count * TURN, from));
        if !rest.is_empty()
            && let Some(ending) = whole.last_chunk()
        {
            turn(end - TURN, ending);
        }
    } else if end >= PAIR {
        for at in [0, end - PAIR] {
            let (pieces, _) = whole[at..].as_chunks();
            piece(at, &pieces[0]);
            piece(at + PIECE, &pieces[1]);
        }
    } else if let (Some(beginning), Some(ending)) = (whole.first_chunk(), whole.last_chunk()) {
        piece(0, beginning);
        piece(end - PIECE, ending);
    }
    if !last.is_empty()
        && let Some(ending) = from.last_chunk()
    {
        let value = u64::from_le_bytes(*ending) >> (u64::BITS - 8 * last.len() as u32);
        words[end / 8].set(value, Relaxed);
    }
}
