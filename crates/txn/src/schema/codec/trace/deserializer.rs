//! The deserializer without bytes.

use std::{any::type_name, cell::RefCell, fmt};

use serde::{
    Deserializer,
    de::{
        self, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
        value::U32Deserializer,
    },
};

use super::graph::{Choice, Content, Form, Graph, Leaf, Slot, parts_of};

/// The deepest nesting of a value that is made up.
const DEEPEST: usize = 100;

/// The values that are made up, in the order in which they are tried. A refused one is followed by
/// the next. They never change, since descriptions depend on what is accepted.
const NUMBERS: [u8; 2] = [1, 0];
const LETTERS: [char; 2] = ['a', '0'];
const STRINGS: [&str; 12] = [
    "",
    "a",
    "1",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:00",
    "1970-01-01",
    "00:00:00",
    "00000000-0000-0000-0000-000000000000",
    "http://a.b/",
    "127.0.0.1",
    "127.0.0.1:80",
    "a@b.ch",
];
const LENGTHS: [usize; 6] = [0, 16, 4, 8, 32, 1];

/// A refusal. It is never shown.
#[derive(Debug)]
pub(super) struct Refused;

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a made-up value was refused")
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

/// A deserializer for one part of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracer<'g> {
    graph: &'g RefCell<Graph>,
    at: Slot,
    depth: usize,
}

impl<'g> Tracer<'g> {
    pub(super) const fn new(graph: &'g RefCell<Graph>, at: Slot) -> Self {
        Self { graph, at, depth: 0 }
    }

    fn leaf<const N: usize, T: Copy, V>(
        self,
        leaf: Leaf,
        values: [T; N],
        visit: impl FnOnce(T) -> Result<V, Refused>,
    ) -> Result<V, Refused> {
        let attempt = self.graph.borrow_mut().leaf(self.at, leaf, N).ok_or(Refused)?;
        visit(values[attempt])
    }

    fn refuse<T>(self) -> Result<T, Refused> {
        self.graph.borrow_mut().refuse();
        Err(Refused)
    }

    /// Notes a composite type.
    fn node<V>(self, form: Form) -> Result<Inside<'g>, Refused> {
        if self.depth == DEEPEST {
            return self.refuse();
        }
        let node = self.graph.borrow_mut().composite(self.at, type_name::<V>(), form).ok_or(Refused)?;
        Ok(Inside { graph: self.graph, node, branch: 0, depth: self.depth + 1 })
    }

    /// Notes a type that has a choice, and visits the chosen branch.
    fn choice<'de, V: Visitor<'de>>(
        self,
        form: Form,
        visit: impl FnOnce(Inside<'g>, Option<usize>) -> Result<V::Value, Refused>,
    ) -> Result<V::Value, Refused> {
        let inside = self.node::<V>(form)?;
        let choice: Choice = {
            let mut graph = self.graph.borrow_mut();
            let choice = graph.choose(inside.node).ok_or(Refused)?;
            graph.enter(inside.node);
            choice
        };
        let inside = Inside { branch: choice.branch.unwrap_or_default(), ..inside };
        let visited = visit(inside, choice.branch);
        self.graph.borrow_mut().leave(inside.node, choice, visited.is_ok());
        visited
    }
}

/// The inside of a branch of a composite type.
#[derive(Clone, Copy, Debug)]
struct Inside<'g> {
    graph: &'g RefCell<Graph>,
    node: usize,
    branch: usize,
    depth: usize,
}

impl<'g> Inside<'g> {
    fn part(self, part: usize) -> Tracer<'g> {
        let at = Slot { node: self.node, branch: self.branch, part };
        Tracer { graph: self.graph, at, depth: self.depth }
    }

    /// Returns the parts of a type without a choice.
    fn parts(self, length: usize) -> Parts<'g> {
        Parts { inside: self, next: 0, length, is_array: parts_of(length) < length }
    }
}

/// The parts of a tuple, a struct, a sequence or a map, one by one.
#[derive(Debug)]
struct Parts<'g> {
    inside: Inside<'g>,
    next: usize,
    length: usize,
    is_array: bool,
}

impl<'g> Parts<'g> {
    fn next(&mut self) -> Option<Tracer<'g>> {
        if self.next == self.length {
            return None;
        }
        self.next += 1;
        Some(self.inside.part(if self.is_array { 0 } else { self.next - 1 }))
    }
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        self.next().map(|part| seed.deserialize(part)).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.length - self.next)
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        self.next().map_or(Err(Refused), |part| seed.deserialize(part))
    }

    fn size_hint(&self) -> Option<usize> {
        Some((self.length - self.next).div_ceil(2))
    }
}

impl<'de> EnumAccess<'de> for Inside<'_> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Refused> {
        let number = u32::try_from(self.branch).map_err(|_| Refused)?;
        let number: U32Deserializer<Refused> = number.into_deserializer();
        Ok((seed.deserialize(number)?, self))
    }
}

impl Inside<'_> {
    /// Notes what is in the variant.
    fn with(self, content: Content) -> Self {
        self.graph.borrow_mut().note_content(self.node, self.branch, content);
        self
    }
}

impl<'de> VariantAccess<'de> for Inside<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        self.with(Content::Unit);
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(self.with(Content::Newtype).part(0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.with(Content::Tuple(length)).parts(length))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(self.with(Content::Struct(fields)).parts(fields.len()))
    }
}

macro_rules! numbers {
    ($($deserialize:ident, $visit:ident, $number:ident;)+) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.leaf(Leaf::Number(stringify!($number)), NUMBERS, |number| visitor.$visit($number::from(number)))
        }
    )+};
}

/// Requests that only a format can answer that describes itself.
macro_rules! refused {
    ($($deserialize:ident)+) => {$(
        fn $deserialize<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
            self.refuse()
        }
    )+};
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Refused;

    numbers! {
        deserialize_i16, visit_i16, i16;
        deserialize_i32, visit_i32, i32;
        deserialize_i64, visit_i64, i64;
        deserialize_i128, visit_i128, i128;
        deserialize_u8, visit_u8, u8;
        deserialize_u16, visit_u16, u16;
        deserialize_u32, visit_u32, u32;
        deserialize_u64, visit_u64, u64;
        deserialize_u128, visit_u128, u128;
        deserialize_f32, visit_f32, f32;
        deserialize_f64, visit_f64, f64;
    }

    refused! { deserialize_any deserialize_identifier deserialize_ignored_any }

    fn deserialize_i8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::Number("i8"), NUMBERS, |number| visitor.visit_i8(number.cast_signed()))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::Bool, [false, true], |is| visitor.visit_bool(is))
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::Char, LETTERS, |letter| visitor.visit_char(letter))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::String, STRINGS, |string| visitor.visit_str(string))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::String, STRINGS, |string| visitor.visit_string(string.to_owned()))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::Bytes, LENGTHS, |length| visitor.visit_bytes(&vec![0; length]))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::Bytes, LENGTHS, |length| visitor.visit_byte_buf(vec![0; length]))
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.leaf(Leaf::Unit, [()], |()| visitor.visit_unit())
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.choice::<V>(Form::Option, |inside, branch| match branch {
            Some(_) => visitor.visit_some(inside.part(0)),
            None => visitor.visit_none(),
        })
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Refused> {
        self.node::<V>(Form::UnitStruct(name))?;
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Refused> {
        let inside = self.node::<V>(Form::Newtype(name))?;
        visitor.visit_newtype_struct(inside.part(0))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.choice::<V>(Form::Sequence, |inside, branch| visitor.visit_seq(inside.parts(branch.map_or(0, |_| 1))))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.choice::<V>(Form::Map, |inside, branch| visitor.visit_map(inside.parts(branch.map_or(0, |_| 2))))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
        let inside = self.node::<V>(Form::Tuple(length))?;
        visitor.visit_seq(inside.parts(length))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let inside = self.node::<V>(Form::TupleStruct(name, length))?;
        visitor.visit_seq(inside.parts(length))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let inside = self.node::<V>(Form::Struct(name, fields))?;
        visitor.visit_seq(inside.parts(fields.len()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.choice::<V>(Form::Enum(name, variants), |inside, _| visitor.visit_enum(inside))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
