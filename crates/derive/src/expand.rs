//! The implementations that a key gets: `Key` itself, and `AsKey` for what stands for it.

use proc_macro::{Ident, Span, TokenStream, TokenTree};

use crate::{
    parse::{Field, Keyed},
    template::fill,
};

pub(crate) fn expand(keyed: &Keyed) -> TokenStream {
    let mut code = key(keyed);
    code.extend(itself(keyed));
    match &keyed.fields[..] {
        [field] => code.extend(borrowed(keyed, field)),
        _ => code.extend(tuple(keyed)),
    }
    code
}

/// Returns a name that belongs to the field of this number.
fn numbered(letter: char, number: usize) -> TokenStream {
    TokenTree::from(Ident::new(&format!("{letter}{number}"), Span::mixed_site())).into()
}

impl Keyed {
    /// Returns a template that is filled once for each field: with its `$name`, its `$type`, its
    /// `$variable`, what `$stands` for it, and whether it may be the key's `$last` part.
    fn each(&self, template: &str) -> TokenStream {
        let last_number = self.fields.len() - 1;
        let mut code = TokenStream::new();
        for (number, field) in self.fields.iter().enumerate() {
            let with = [
                ("path", self.path.clone()),
                ("name", field.name.clone().into()),
                ("type", field.of_type.clone()),
                ("variable", numbered('f', number)),
                ("stands", numbered('A', number)),
                ("last", fill(if number == last_number { "last" } else { "false" }, &[])),
            ];
            code.extend(fill(template, &with));
        }
        code
    }

    /// Returns a template that is filled with the key's `$name`, the `$path`, and others.
    fn fill(&self, template: &str, others: &[(&str, TokenStream)]) -> TokenStream {
        let mut with = vec![("name", TokenTree::from(self.name.clone()).into()), ("path", self.path.clone())];
        with.extend_from_slice(others);
        fill(template, &with)
    }
}

/// `Key`: parts one after the other, as in a tuple.
fn key(keyed: &Keyed) -> TokenStream {
    let has_names = keyed.fields.iter().any(|field| matches!(field.name, TokenTree::Ident(_)));
    let (types, around) = if has_names {
        let types = "::std::format!(\"{}:{}\", ::core::stringify!($name), <$type as $path::Key>::describe()),";
        (keyed.each(types), fill("\"{}{{{}}}\"", &[]))
    } else {
        (keyed.each("<$type as $path::Key>::describe(),"), fill("\"{}({})\"", &[]))
    };
    let with = [
        (
            "sizes",
            keyed.each(
                "let size = match (size, <$type as $path::Key>::SIZE) {
                    (::core::option::Option::Some(size), ::core::option::Option::Some(part)) =>
                        ::core::option::Option::Some(size + part),
                    _ => ::core::option::Option::None,
                };",
            ),
        ),
        ("shapes", keyed.each("<$type as $path::Key>::shape(),")),
        ("types", types),
        ("around", around),
        ("parts", keyed.each("$name: $variable,")),
        ("packs", keyed.each("let word = <$type as $path::Key>::pack($variable, word);")),
        ("writes", keyed.each("<$type as $path::Key>::write($variable, bytes, $last);")),
        ("reads", keyed.each("$name: <$type as $path::Key>::read(reader, $last)?,")),
    ];
    keyed.fill(
        "#[automatically_derived]
        impl $path::Key for $name {
            const SIZE: ::core::option::Option<usize> = {
                let size = ::core::option::Option::Some(0_usize);
                $sizes
                size
            };
            fn shape() -> ::std::string::String {
                let parts: &[::std::string::String] = &[$shapes];
                match parts {
                    [part] => ::std::clone::Clone::clone(part),
                    parts => ::std::format!(\"({})\", parts.join(\",\")),
                }
            }
            fn describe() -> ::std::string::String {
                let parts: &[::std::string::String] = &[$types];
                ::std::format!($around, ::core::stringify!($name), parts.join(\",\"))
            }
            #[inline(always)]
            fn pack(&self, word: u64) -> u64 {
                let Self { $parts } = self;
                $packs
                word
            }
            #[inline]
            fn write(&self, bytes: &mut ::std::vec::Vec<u8>, last: bool) {
                let Self { $parts } = self;
                $writes
            }
            #[inline]
            fn read(reader: &mut $path::KeyReader<'_>, last: bool) -> ::core::option::Option<Self> {
                ::core::option::Option::Some(Self { $reads })
            }
        }",
        &with,
    )
}

/// The key by value.
fn itself(keyed: &Keyed) -> TokenStream {
    keyed.fill(
        "#[automatically_derived]
        impl $path::AsKey<$name> for $name {
            #[inline(always)]
            fn pack_key(&self, word: u64) -> u64 {
                $path::Key::pack(self, word)
            }
            #[inline(always)]
            fn write_key(&self, bytes: &mut ::std::vec::Vec<u8>, last: bool) {
                $path::Key::write(self, bytes, last);
            }
        }",
        &[],
    )
}

/// A tuple of what stands for each part.
fn tuple(keyed: &Keyed) -> TokenStream {
    let with = [
        ("parameters", keyed.each("$stands: $path::AsKey<$type>,")),
        ("arguments", keyed.each("$stands,")),
        ("variables", keyed.each("$variable,")),
        ("packs", keyed.each("let word = <$stands as $path::AsKey<$type>>::pack_key($variable, word);")),
        ("writes", keyed.each("<$stands as $path::AsKey<$type>>::write_key($variable, bytes, $last);")),
    ];
    keyed.fill(
        "#[automatically_derived]
        impl<$parameters> $path::AsKey<$name> for ($arguments) {
            #[inline(always)]
            fn pack_key(&self, word: u64) -> u64 {
                let ($variables) = self;
                $packs
                word
            }
            #[inline]
            fn write_key(&self, bytes: &mut ::std::vec::Vec<u8>, last: bool) {
                let ($variables) = self;
                $writes
            }
        }",
        &with,
    )
}

/// A slice, in place of a newtype that owns a string. Of others nothing: a newtype is there to be
/// told from what it wraps.
fn borrowed(keyed: &Keyed, field: &Field) -> TokenStream {
    let of_type: String = field.of_type.to_string().split_whitespace().collect();
    let slice = match of_type.as_str() {
        "String" | "std::string::String" | "::std::string::String" => "&str",
        "Vec<u8>" | "std::vec::Vec<u8>" | "::std::vec::Vec<u8>" => "&[u8]",
        _ => return TokenStream::new(),
    };
    let with = [("slice", fill(slice, &[])), ("type", field.of_type.clone())];
    let mut code = keyed.fill(
        "#[automatically_derived]
        impl $path::AsKey<$name> for $slice {
            #[inline(always)]
            fn pack_key(&self, word: u64) -> u64 {
                $path::AsKey::<$type>::pack_key(self, word)
            }
            #[inline]
            fn write_key(&self, bytes: &mut ::std::vec::Vec<u8>, last: bool) {
                $path::AsKey::<$type>::write_key(self, bytes, last);
            }
        }",
        &with,
    );
    code.extend(prefix(keyed, field));
    code
}

/// What such a newtype begins with, as a range.
fn prefix(keyed: &Keyed, field: &Field) -> TokenStream {
    keyed.fill(
        "#[automatically_derived]
        impl<'k> $path::KeyRange<$name> for $path::Prefix<'k> {
            type End = $path::PrefixEnd<'k>;
            #[inline]
            fn ends(self) -> (::core::ops::Bound<Self::End>, ::core::ops::Bound<Self::End>) {
                $path::KeyRange::<$type>::ends(self)
            }
        }
        #[automatically_derived]
        impl<'k> $path::AsKey<$name> for $path::PrefixEnd<'k> {
            #[inline]
            fn pack_key(&self, word: u64) -> u64 {
                $path::AsKey::<$type>::pack_key(self, word)
            }
            #[inline]
            fn write_key(&self, bytes: &mut ::std::vec::Vec<u8>, last: bool) {
                $path::AsKey::<$type>::write_key(self, bytes, last);
            }
        }",
        &[("type", field.of_type.clone())],
    )
}
