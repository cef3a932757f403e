//! Descriptions of types: what they tell apart, what they do not, and that they never change.

use std::{
    any::type_name,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    num::NonZeroU8,
    time::Duration,
};

use serde::{Deserialize, Deserializer, de::Error as _};

use super::describe;

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
struct User {
    name: String,
    age: Option<u32>,
    tags: Vec<(u8, bool)>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
enum Kind {
    Nothing,
    One(i64),
    Two(f32, char),
    Named { user: User, again: Option<User> },
}

#[derive(Deserialize)]
struct Unit;

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
struct Meters(f64);

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
struct Pair(u16, Meters);

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
struct List {
    head: u32,
    tail: Option<Box<List>>,
    more: u8,
}

/// The first variants do not end by themselves.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
enum Expression {
    Add(Box<Expression>, Box<Expression>),
    All(Vec<Expression>, Inner),
    Number(i64),
}

/// What its later variants have is only seen through a later variant of the one around.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
enum Inner {
    First,
    Second(u8),
    Third { back: Box<Expression> },
}

#[derive(Deserialize)]
#[serde(transparent)]
#[expect(dead_code, reason = "only its shape matters")]
struct Tree(Vec<Tree>);

/// No value of it ends.
#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
struct Endless {
    name: String,
    next: Box<Endless>,
    last: u8,
}

mod other {
    #[derive(serde::Deserialize)]
    #[expect(dead_code, reason = "only its shape matters")]
    pub(super) enum Kind {
        Other(u8),
    }
}

/// Directories contain these texts.
#[test]
fn descriptions_are_for_good() {
    assert_eq!(describe::<(u8, i16, u32, i64, u128, i128, f32, f64)>(), "(u8,i16,u32,i64,u128,i128,f32,f64)");
    assert_eq!(describe::<(i8, u16, i32, u64, usize, isize)>(), "(i8,u16,i32,u64*2,i64)");
    assert_eq!(describe::<(bool, char, String, ())>(), "(bool,char,string,())");
    assert_eq!(describe::<([u8; 32], (u8, u8), Vec<String>)>(), "((u8*32),(u8*2),[string])");
    assert_eq!(describe::<BTreeMap<u8, HashMap<String, Option<Option<i8>>>>>(), "{u8:{string:i8??}}");
    assert_eq!(describe::<User>(), "User{name:string,age:u32?,tags:[(u8,bool)]}");
    assert_eq!(
        describe::<Kind>(),
        "Kind<Nothing|One(i64)|Two(f32,char)|Named{user:User{name:string,age:u32?,tags:[(u8,bool)]},again:^User?}>"
    );
    assert_eq!(describe::<(Unit, Meters, Pair)>(), "(Unit(),Meters(f64),Pair(u16,^Meters))");
    assert_eq!(describe::<(Duration, IpAddr)>(), "(Duration{secs:u64,nanos:u32},IpAddr<V4((u8*4))|V6((u8*16))>)");
    assert_eq!(describe::<Result<NonZeroU8, other::Kind>>(), "Result<Ok(u8)|Err(Kind<Other(u8)>)>");
    assert_eq!(
        describe::<(Kind, other::Kind, other::Kind)>(),
        "(Kind<Nothing|One(i64)|Two(f32,char)|Named{user:User{name:string,age:u32?,tags:[(u8,bool)]},again:^User?}>,\
         Kind'2<Other(u8)>,^Kind'2)"
    );
}

#[test]
fn recursive_types_end() {
    assert_eq!(describe::<List>(), "List{head:u32,tail:^List?,more:u8}");
    assert_eq!(
        describe::<Expression>(),
        "Expression<Add(^Expression*2)|All([^Expression],Inner<First|Second(u8)|Third{back:^Expression}>)|Number(i64)>"
    );
    assert_eq!(describe::<(Tree, u8)>(), "([^1],u8)");
    assert_eq!(describe::<Endless>(), "Endless as Endless{name:string,next:^Endless,last:?}");
}

/// Tries made-up values until one is accepted. Where none is, the rest is not seen.
#[test]
fn types_that_check_their_values_are_seen_as_far_as_they_go() {
    #[derive(Deserialize)]
    #[serde(try_from = "u32")]
    struct Even;
    impl TryFrom<u32> for Even {
        type Error = &'static str;
        fn try_from(number: u32) -> Result<Self, &'static str> {
            if number.is_multiple_of(2) { Ok(Self) } else { Err("odd") }
        }
    }
    struct Day;
    impl<'de> Deserialize<'de> for Day {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let day = String::deserialize(deserializer)?;
            if day.len() == 10 { Ok(Self) } else { Err(D::Error::custom("no day")) }
        }
    }
    #[derive(Deserialize)]
    struct Picky(#[serde(deserialize_with = "never")] u8);
    fn never<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
        let number = u8::deserialize(deserializer)?;
        if number == 77 { Ok(number) } else { Err(D::Error::custom("not 77")) }
    }
    struct Breaks;
    impl<'de> Deserialize<'de> for Breaks {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let bytes = String::deserialize(deserializer)?;
            assert_eq!(bytes, "only this");
            Ok(Self)
        }
    }
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Row<T> {
        before: u8,
        part: T,
        after: i16,
    }
    assert_eq!(describe::<Row<Even>>(), "Row{before:u8,part:u32,after:i16}");
    assert_eq!(describe::<Row<Day>>(), "Row{before:u8,part:string,after:i16}");
    assert_eq!(describe::<Row<Picky>>(), "Row<Picky> as Row{before:u8,part:Picky(u8),after:?}");
    assert_eq!(describe::<Row<Option<Picky>>>(), "Row<Option<Picky>> as Row{before:u8,part:Picky(u8)?,after:i16}");
    assert_eq!(describe::<Breaks>(), "Breaks as string");
    assert_eq!(Picky(77).0, 77);
}

/// Names a type that only a self-describing format can decode: it cannot be in a table.
#[test]
fn types_that_take_anything_have_their_name() {
    #[derive(Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only its shape matters")]
    enum Any {
        One(u8),
        Two(String),
    }
    assert_eq!(describe::<Any>(), "Any as ?");
}

#[test]
fn names_that_are_no_identifiers_are_quoted() {
    #[derive(Deserialize)]
    #[serde(rename = "a{b:u8}")]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Odd {
        #[serde(rename = "x,y")]
        field: u8,
    }
    assert_eq!(describe::<Odd>(), r#""a{b:u8}"{"x,y":u8}"#);
}

/// Looks at one part of a long array only.
#[test]
fn long_arrays_and_wide_types_are_bounded() {
    struct Long;
    impl<'de> Deserialize<'de> for Long {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct Parts;
            impl<'de> serde::de::Visitor<'de> for Parts {
                type Value = Long;
                fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    f.write_str("many bytes")
                }
                fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut parts: A) -> Result<Long, A::Error> {
                    let mut count = 0;
                    while parts.next_element::<u8>()?.is_some() {
                        count += 1;
                    }
                    if count == 5_000 { Ok(Long) } else { Err(A::Error::custom("too few")) }
                }
            }
            deserializer.deserialize_tuple(5_000, Parts)
        }
    }
    assert_eq!(describe::<(Long, u8)>(), "((u8*5000),u8)");

    /// Twice as many paths with each level.
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Twice<T>(Box<T>, Box<T>, Option<Box<T>>);
    type Wide = Twice<Twice<Twice<Twice<Twice<Twice<Twice<Twice<Kind>>>>>>>>;
    let text = describe::<Wide>();
    assert_eq!(text.matches("Kind<").count(), 1, "{text}");
}

trait Owned: serde::de::DeserializeOwned {}
impl<T: serde::de::DeserializeOwned> Owned for T {}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
struct Named<A, B> {
    a: A,
    b: B,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
struct Swapped<A, B> {
    b: B,
    a: A,
}

#[derive(Deserialize)]
struct Plain<A, B>(A, B);

#[derive(Deserialize)]
struct Wrapped<A>(A);

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
enum Chosen<A, B> {
    First(A),
    Second { a: A, b: B },
    Third,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "only its shape matters")]
enum Reordered<A, B> {
    Second { a: A, b: B },
    First(A),
    Third,
}

/// Descriptions of types, and the types.
type Known = HashMap<String, &'static str>;

fn add<T: Owned>(known: &mut Known) {
    let (text, name) = (describe::<T>(), type_name::<T>());
    assert_eq!(describe::<T>(), text, "{name}");
    assert!(!text.contains(" as "), "all of it was seen: {name}");
    if let Some(other) = known.insert(text.clone(), name) {
        assert_eq!(other, name, "{text}");
    }
}

fn around<A: Owned, B: Owned>(known: &mut Known) {
    add::<A>(known);
    add::<Option<A>>(known);
    add::<Vec<A>>(known);
    add::<[A; 3]>(known);
    add::<(A, B)>(known);
    add::<(A, B, B)>(known);
    add::<((A, B), B)>(known);
    add::<Vec<(A, Option<B>)>>(known);
    add::<Wrapped<A>>(known);
    add::<Named<A, B>>(known);
    add::<Swapped<A, B>>(known);
    add::<Plain<A, B>>(known);
    add::<Chosen<A, B>>(known);
    add::<Reordered<A, B>>(known);
    add::<Chosen<Named<A, B>, Chosen<B, A>>>(known);
}

fn nested<A: Owned, B: Owned>(known: &mut Known) {
    around::<A, B>(known);
    around::<B, A>(known);
    around::<Option<A>, Vec<B>>(known);
    around::<Named<A, B>, Swapped<A, B>>(known);
    around::<Chosen<A, B>, Reordered<B, A>>(known);
    around::<Vec<Chosen<A, Option<B>>>, Plain<Wrapped<A>, B>>(known);
}

/// Types of different shapes have different descriptions, and a type always has the same.
#[test]
fn different_shapes_are_told_apart() {
    let mut known = Known::new();
    nested::<u8, u32>(&mut known);
    nested::<i32, u32>(&mut known);
    nested::<String, bool>(&mut known);
    nested::<f64, char>(&mut known);
    nested::<(), Vec<u8>>(&mut known);
    nested::<User, List>(&mut known);
    nested::<Expression, Kind>(&mut known);
    assert!(known.len() > 450, "{}", known.len());
}
