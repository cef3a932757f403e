//! Descriptions of types, by which a table knows its rows when it is opened again: see
//! `docs/decisions/0078`.
//!
//! Directories contain these texts, so they never change for the same type.

/// The longest description that is kept whole.
pub(crate) const LONGEST: usize = 2_000;

/// Returns a type's name without the modules that it is in.
pub(crate) fn name_of<T: ?Sized>() -> String {
    without_modules(std::any::type_name::<T>())
}

/// Removes the modules from all paths of a type's name.
fn without_modules(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    // Where the last path begins in `short`.
    let mut begin = 0;
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ':' && letters.next_if_eq(&':').is_some() {
            short.truncate(begin);
            continue;
        }
        short.push(letter);
        if !(letter.is_alphanumeric() || letter == '_') {
            begin = short.len();
        }
    }
    short
}

/// Shortens a description of more than `most` bytes to its beginning and a hash of all of it.
pub(crate) fn shortened(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let hash = hash(text.as_bytes());
    let kept = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}... #{hash:032x}", &text[..kept])
}

/// Returns the 128-bit FNV-1a hash of some bytes.
fn hash(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_their_modules() {
        for (long, short) in [
            ("u64", "u64"),
            ("shop::rows::Order", "Order"),
            ("alloc::vec::Vec<shop::rows::Order<alloc::string::String, 3>>", "Vec<Order<String, 3>>"),
            ("(core::option::Option<a::B>, [c::d::E; 4], &f::G)", "(Option<B>, [E; 4], &G)"),
            ("<a::B as c::D>::E", "<B as D>E"),
        ] {
            assert_eq!(without_modules(long), short);
        }
        assert_eq!(name_of::<Vec<Option<String>>>(), "Vec<Option<String>>");
    }

    /// The published results of the hash.
    #[test]
    fn hashes_are_for_good() {
        assert_eq!(hash(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(hash(b"a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(hash(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn long_descriptions_differ_by_what_is_cut_off() {
        let text = |last: &str| format!("{}{last}", "\u{e9}".repeat(LONGEST));
        let (one, two) = (shortened(text("a"), LONGEST), shortened(text("b"), LONGEST));
        assert!(one != two && one.len() <= LONGEST + 40, "{one}");
        assert_eq!(one[..LONGEST], two[..LONGEST]);
        let short = "x".repeat(LONGEST);
        assert_eq!(shortened(short.clone(), LONGEST), short);
    }
}
