//! `derive(Key)`: structs as keys of drtm's tables.
//!
//! Applications use it as `drtm::Key`. It depends on no other crate, so that an application builds
//! no parser of Rust for it: `parse` reads as much of a struct as a key needs.

#![forbid(unsafe_code)]

mod expand;
mod parse;
mod template;

use proc_macro::TokenStream;

/// Derives `Key` for a struct: its fields, in their order, are the parts of the key.
///
/// A struct is encoded as the tuple of its fields is, so it sorts as `derive(Ord)` has it. A table
/// that has tuples as keys can be opened again with such a struct, once its shape is named alike.
///
/// `AsKey` is derived, too. So a lookup takes the struct by value or by reference. If it has two
/// fields or more, a lookup takes a tuple of values that can be looked up as these. If it is a
/// newtype of `String` or `Vec<u8>`, a lookup takes a `&str` or a `&[u8]`, and `prefix` is a range
/// of it.
///
/// Enums, unions, generic structs, and structs without fields are refused.
///
/// An application that does not depend on `drtm` itself says where the traits are:
/// `#[key(crate = path)]`.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Key, Ordered, Pod, TableDef};
///
/// #[derive(Clone, Debug, PartialEq, Key)]
/// struct Place {
///     warehouse: String,
///     shelf: u32,
/// }
///
/// const STOCK: TableDef<Place, Pod<u64>, Ordered> = TableDef::ordered("stock");
/// let db = Db::new()?;
/// let stock = db.table(STOCK)?;
/// db.transact(|tx| {
///     tx.put(stock, ("eu", 7), &40)?;
///     let place = Place { warehouse: "eu".to_owned(), shelf: 7 };
///     assert_eq!(tx.get(stock, &place)?, Some(40));
///     assert_eq!(tx.range(stock, ("eu", 3)..)?.first()?, Some((place, 40)));
///     Ok(())
/// })?;
/// # Ok::<(), Error>(())
/// ```
///
/// ```compile_fail
/// #[derive(Clone, drtm::Key)]
/// struct Pair<T>(T, T);
/// ```
#[proc_macro_derive(Key, attributes(key))]
pub fn derive_key(item: TokenStream) -> TokenStream {
    match parse::parse(item) {
        Ok(keyed) => expand::expand(&keyed),
        Err(refusal) => refusal.into_error(),
    }
}
