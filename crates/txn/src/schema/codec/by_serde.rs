//! Serde codecs, in formats that never change: `docs/decisions/0047`.

use std::marker::PhantomData;

use serde::{Serialize, de::DeserializeOwned};

use super::{Codec, CodecError, trace};

/// Whatever serde can describe, in the format of bincode 2 in its standard configuration:
/// little-endian, with integers of variable length. It needs the feature `bincode`.
///
/// The format is fixed. The successor of bincode, which is no longer developed, reads the same
/// bytes. Choose [`Postcard`] for new tables that other programs read.
///
/// # Example
///
/// ```
/// use drtm::{Bincode, Codec};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// struct Order {
///     customer: u32,
///     items: Vec<String>,
/// }
///
/// let order = Order { customer: 7, items: vec!["tea".into()] };
/// let mut bytes = Vec::new();
/// Bincode::encode(&order, &mut bytes)?;
/// assert_eq!(bytes, b"\x07\x01\x03tea");
/// assert_eq!(Bincode::<Order>::decode(&bytes)?, order);
/// assert!(Bincode::<Order>::decode(&bytes[1..]).is_err());
/// # Ok::<(), drtm::CodecError>(())
/// ```
#[cfg(feature = "bincode")]
#[derive(Debug)]
pub struct Bincode<T>(PhantomData<fn() -> T>);

/// The default serde codec, for tables where the format does not matter: always [`Bincode`].
/// It needs the feature `bincode`.
///
/// # Example
///
/// ```
/// use drtm::{Codec, Serde};
///
/// let mut bytes = Vec::new();
/// Serde::encode(&(7_u32, "tea".to_owned()), &mut bytes)?;
/// assert_eq!(Serde::<(u32, String)>::decode(&bytes)?, (7, "tea".to_owned()));
/// # Ok::<(), drtm::CodecError>(())
/// ```
#[cfg(feature = "bincode")]
pub type Serde<T> = Bincode<T>;

/// The most bytes that a value may make the deserializer allocate. It is far more than a record
/// holds.
#[cfg(feature = "bincode")]
pub(crate) const LIMIT: usize = 1 << 20;

#[cfg(feature = "bincode")]
const STANDARD: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Varint,
    bincode::config::Limit<LIMIT>,
> = bincode::config::standard().with_limit::<LIMIT>();

fn refused_value(error: impl ToString) -> CodecError {
    CodecError::Encode { reason: error.to_string() }
}

fn refused_bytes(error: impl ToString) -> CodecError {
    CodecError::Decode { reason: error.to_string() }
}

/// Returns a value, if it used all of its bytes.
fn whole<T>(value: T, read: usize, bytes: &[u8]) -> Result<T, CodecError> {
    if read == bytes.len() {
        Ok(value)
    } else {
        Err(refused_bytes(format!("it ends after {read} of {} bytes", bytes.len())))
    }
}

#[cfg(feature = "bincode")]
impl<T: Serialize + DeserializeOwned + 'static> Codec for Bincode<T> {
    type Value = T;
    type Given = T;
    type View<'b> = T;
    const FAMILY: &'static str = "bincode2";

    fn describe() -> String {
        trace::describe::<T>()
    }

    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        bincode::serde::encode_into_std_write(value, bytes, STANDARD).map(drop).map_err(refused_value)
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        let (value, read) = bincode::serde::decode_from_slice(bytes, STANDARD).map_err(refused_bytes)?;
        whole(value, read, bytes)
    }

    fn view(bytes: &[u8]) -> Result<T, CodecError> {
        Self::decode(bytes)
    }
}

/// Whatever serde can describe, in the format of postcard 1: that of its specification, which other
/// languages read too. It needs the feature `postcard`.
///
/// The format is fixed.
///
/// # Example
///
/// ```
/// use drtm::{Db, Error, Postcard, TableDef};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Debug, PartialEq, Serialize, Deserialize)]
/// enum Shape {
///     Circle { radius: u32 },
///     Text(String),
/// }
///
/// const SHAPES: TableDef<u64, Postcard<Shape>> = TableDef::hash("shapes");
/// let db = Db::new()?;
/// let shapes = db.table(SHAPES)?;
/// db.transact(|tx| tx.put(shapes, 1, &Shape::Circle { radius: 7 }))?;
/// assert_eq!(db.read(|tx| tx.get(shapes, 1))?, Some(Shape::Circle { radius: 7 }));
/// # Ok::<(), Error>(())
/// ```
#[cfg(feature = "postcard")]
#[derive(Debug)]
pub struct Postcard<T>(PhantomData<fn() -> T>);

/// A vector to append to. Postcard drops the collection that it extends when it fails, so it gets
/// this, not the vector itself, which may hold other values.
#[cfg(feature = "postcard")]
struct Behind<'b>(&'b mut Vec<u8>);

#[cfg(feature = "postcard")]
impl Extend<u8> for Behind<'_> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

#[cfg(feature = "postcard")]
impl<T: Serialize + DeserializeOwned + 'static> Codec for Postcard<T> {
    type Value = T;
    type Given = T;
    type View<'b> = T;
    const FAMILY: &'static str = "postcard1";

    fn describe() -> String {
        trace::describe::<T>()
    }

    fn encode(value: &T, bytes: &mut Vec<u8>) -> Result<(), CodecError> {
        postcard::to_extend(value, Behind(bytes)).map(drop).map_err(refused_value)
    }

    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        let (value, rest) = postcard::take_from_bytes(bytes).map_err(refused_bytes)?;
        whole(value, bytes.len() - rest.len(), bytes)
    }

    fn view(bytes: &[u8]) -> Result<T, CodecError> {
        Self::decode(bytes)
    }
}

#[cfg(all(test, feature = "bincode", feature = "postcard"))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;
    use crate::{Db, Error, TableDef};

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    enum Kind {
        Nothing,
        One(i64),
        Named { name: String, of: Option<bool> },
    }

    type All = (u64, String, Vec<(u8, Option<i64>)>, BTreeMap<String, f64>, Vec<Kind>);

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            Just(Kind::Nothing),
            any::<i64>().prop_map(Kind::One),
            any::<(String, Option<bool>)>().prop_map(|(name, of)| Kind::Named { name, of }),
        ]
    }

    fn comes_back<C: Codec<Value = All, Given = All>>(value: &All) -> Result<(), TestCaseError> {
        let mut bytes = b"kept".to_vec();
        C::encode(value, &mut bytes).expect("it can be written");
        prop_assert_eq!(&bytes[..4], b"kept");
        prop_assert_eq!(&C::decode(&bytes[4..]).expect("it was written"), value);
        prop_assert!(C::decode(&bytes[4..bytes.len() - 1]).is_err(), "the end is missing");
        bytes.push(0);
        prop_assert!(C::decode(&bytes[4..]).is_err(), "there is more than it");
        Ok(())
    }

    fn refuses_or_reads<C: Codec<Value = Vec<String>, Given = Vec<String>>>(noise: &[u8]) -> Result<(), TestCaseError> {
        if let Ok(value) = C::decode(noise) {
            let mut bytes = Vec::new();
            C::encode(&value, &mut bytes).expect("it can be written");
            prop_assert_eq!(C::decode(&bytes), Ok(value));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn values_come_back(
            number: u64, text: String, list: Vec<(u8, Option<i64>)>,
            map in prop::collection::btree_map(any::<String>(), prop::num::f64::NORMAL, 0..4),
            kinds in prop::collection::vec(kind(), 0..4),
        ) {
            let value = (number, text, list, map, kinds);
            comes_back::<Bincode<All>>(&value)?;
            comes_back::<Postcard<All>>(&value)?;
        }

        #[test]
        fn noise_is_refused_or_a_value_and_never_a_panic(noise: Vec<u8>) {
            refuses_or_reads::<Bincode<Vec<String>>>(&noise)?;
            refuses_or_reads::<Postcard<Vec<String>>>(&noise)?;
        }
    }

    /// Directories contain these bytes.
    #[test]
    fn bytes_are_for_good() {
        let value = (300_u32, -2_i16, true, Some("tea".to_owned()), vec![1.5_f32], Kind::One(-1), 'x', [1_u8, 2]);
        let mut bytes = Vec::new();
        Bincode::encode(&value, &mut bytes).expect("it can be written");
        assert_eq!(bytes, b"\xfb\x2c\x01\x03\x01\x01\x03tea\x01\0\0\xc0\x3f\x01\x01x\x01\x02");
        bytes.clear();
        Postcard::encode(&value, &mut bytes).expect("it can be written");
        assert_eq!(bytes, b"\xac\x02\x03\x01\x01\x03tea\x01\0\0\xc0\x3f\x01\x01\x01x\x01\x02");
    }

    #[test]
    fn a_length_that_lies_allocates_nothing() {
        let mut bytes = vec![253];
        bytes.extend_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(Bincode::<Vec<u64>>::decode(&bytes), Err(CodecError::Decode { .. })));
        let lies = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
        assert!(matches!(Postcard::<Vec<u64>>::decode(&lies), Err(CodecError::Decode { .. })));
        assert!(matches!(Postcard::<String>::decode(&lies), Err(CodecError::Decode { .. })));
    }

    /// A value that serde cannot describe leaves the bytes before it alone.
    #[test]
    fn a_value_that_is_refused_is_an_error() {
        #[derive(Deserialize)]
        struct Refusing;
        impl Serialize for Refusing {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("on purpose"))
            }
        }
        let mut bytes = b"before".to_vec();
        assert!(matches!(Bincode::encode(&Refusing, &mut bytes), Err(CodecError::Encode { .. })));
        assert!(bytes.starts_with(b"before"));
        assert!(matches!(Postcard::encode(&Refusing, &mut bytes), Err(CodecError::Encode { .. })));
        assert!(bytes.starts_with(b"before"));
    }

    /// A transaction that continues after such a value has kept its earlier writes.
    #[test]
    fn a_transaction_outlives_a_value_that_is_refused() {
        #[derive(Deserialize)]
        struct Even(u64);
        impl Serialize for Even {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if self.0.is_multiple_of(2) {
                    serializer.serialize_u64(self.0)
                } else {
                    Err(serde::ser::Error::custom("odd"))
                }
            }
        }
        fn keeps<C: Codec<Value = Even, Given = Even>>() -> Result<(), Error> {
            let db = Db::new()?;
            let numbers = db.table(TableDef::<u64, C>::hash("numbers"))?;
            // Values of existing rows wait for the commit.
            db.transact(|tx| [1, 2, 3].iter().try_for_each(|key| tx.put(numbers, key, &Even(2_000))))?;
            db.transact(|tx| {
                tx.put(numbers, 1, &Even(1_000))?;
                let refused = tx.put(numbers, 2, &Even(7));
                assert!(matches!(refused, Err(Error::Codec { .. })));
                tx.put(numbers, 3, &Even(8))
            })?;
            let seen = [1, 2, 3].map(|key| db.read(|tx| tx.get(numbers, key)).map(|found| found.map(|even| even.0)));
            assert!(matches!(seen, [Ok(Some(1_000)), Ok(Some(2_000)), Ok(Some(8))]));
            Ok(())
        }
        keeps::<Bincode<Even>>().expect("even numbers are written");
        keeps::<Postcard<Even>>().expect("even numbers are written");
    }
}
