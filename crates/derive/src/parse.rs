//! Reads as much of a struct as a key needs: its name and its fields. Whatever else it finds, it
//! refuses with a message at that place.

use std::iter::Peekable;

use proc_macro::{Delimiter, Group, Ident, Literal, Spacing, Span, TokenStream, TokenTree, token_stream};

use crate::template::fill;

/// A struct that is to be a key.
pub(crate) struct Keyed {
    pub(crate) name: Ident,
    pub(crate) fields: Vec<Field>,
    /// Where the traits are.
    pub(crate) path: TokenStream,
}

pub(crate) struct Field {
    /// Its name, or its number.
    pub(crate) name: TokenTree,
    pub(crate) of_type: TokenStream,
}

/// Why something cannot be a key.
pub(crate) struct Refusal {
    at: Span,
    why: &'static str,
}

impl Refusal {
    /// Returns code by which the compiler shows the reason at its place.
    pub(crate) fn into_error(self) -> TokenStream {
        let mut why = Literal::string(self.why);
        why.set_span(self.at);
        let error = fill("::core::compile_error! { $why }", &[("why", TokenTree::from(why).into())]);
        // The compiler shows the place of the whole macro call.
        error
            .into_iter()
            .map(|mut token| {
                token.set_span(self.at);
                token
            })
            .collect()
    }
}

fn refuse<T>(at: Span, why: &'static str) -> Result<T, Refusal> {
    Err(Refusal { at, why })
}

type Tokens = Peekable<token_stream::IntoIter>;

const GENERIC: &str =
    "a key cannot be generic: a table has keys of one type, so derive `Key` for a struct of that type";
const NOT_A_STRUCT: &str = "`Key` is derived for structs only: the order of an enum's variants in bytes is a choice, \
     so implement `Key` by hand, or use a number as the key";
const NO_FIELDS: &str = "a key needs a field: all rows would have the same key";
const OPTIONS: &str = "the only option is `#[key(crate = path)]`";

pub(crate) fn parse(item: TokenStream) -> Result<Keyed, Refusal> {
    let mut tokens = item.into_iter().peekable();
    let path = attributes(&mut tokens)?.unwrap_or_else(|| fill("::drtm", &[]));
    visibility(&mut tokens);
    match tokens.next() {
        Some(TokenTree::Ident(word)) if word.to_string() == "struct" => {}
        other => return refuse(span_of(other.as_ref()), NOT_A_STRUCT),
    }
    let name = match tokens.next() {
        Some(TokenTree::Ident(name)) => name,
        other => return refuse(span_of(other.as_ref()), NOT_A_STRUCT),
    };
    let fields = match tokens.next() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => named(&group)?,
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            // What may follow is a `where` clause.
            match tokens.next() {
                Some(TokenTree::Punct(end)) if end.as_char() == ';' => numbered(&group)?,
                other => return refuse(span_of(other.as_ref()), GENERIC),
            }
        }
        Some(TokenTree::Punct(end)) if end.as_char() == ';' => Vec::new(),
        other => return refuse(span_of(other.as_ref()), GENERIC),
    };
    if fields.is_empty() {
        return refuse(name.span(), NO_FIELDS);
    }
    Ok(Keyed { name, fields, path })
}

fn span_of(token: Option<&TokenTree>) -> Span {
    token.map_or_else(Span::call_site, TokenTree::span)
}

fn is_punct(token: Option<&TokenTree>, symbol: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == symbol)
}

/// Takes attributes. Returns the path of a `#[key(crate = path)]`.
fn attributes(tokens: &mut Tokens) -> Result<Option<TokenStream>, Refusal> {
    let mut path = None;
    while is_punct(tokens.peek(), '#') {
        tokens.next();
        let Some(TokenTree::Group(attribute)) = tokens.next() else { continue };
        let mut attribute = attribute.stream().into_iter();
        if !matches!(attribute.next(), Some(TokenTree::Ident(name)) if name.to_string() == "key") {
            continue;
        }
        let Some(TokenTree::Group(option)) = attribute.next() else { return refuse(Span::call_site(), OPTIONS) };
        let mut words = option.stream().into_iter();
        match (words.next(), words.next()) {
            (Some(TokenTree::Ident(word)), equals)
                if word.to_string() == "crate" && is_punct(equals.as_ref(), '=') && path.is_none() =>
            {
                path = Some(words.collect());
            }
            _ => return refuse(option.span(), OPTIONS),
        }
    }
    Ok(path)
}

/// Takes a visibility, if there is one.
fn visibility(tokens: &mut Tokens) {
    if matches!(tokens.peek(), Some(TokenTree::Ident(word)) if word.to_string() == "pub") {
        tokens.next();
        if matches!(tokens.peek(), Some(TokenTree::Group(of)) if of.delimiter() == Delimiter::Parenthesis) {
            tokens.next();
        }
    }
}

fn named(group: &Group) -> Result<Vec<Field>, Refusal> {
    fields(group, |tokens, _| {
        let name = tokens.next();
        let colon = tokens.next();
        name.filter(|_| is_punct(colon.as_ref(), ':'))
    })
}

fn numbered(group: &Group) -> Result<Vec<Field>, Refusal> {
    fields(group, |tokens, number| {
        // In brackets, a type may begin with a visibility.
        visibility(tokens);
        Some(Literal::usize_unsuffixed(number).into())
    })
}

fn fields(group: &Group, name: impl Fn(&mut Tokens, usize) -> Option<TokenTree>) -> Result<Vec<Field>, Refusal> {
    let mut tokens = group.stream().into_iter().peekable();
    let mut fields = Vec::new();
    while tokens.peek().is_some() {
        if attributes(&mut tokens)?.is_some() {
            return refuse(group.span(), "`#[key(crate = path)]` belongs to the struct");
        }
        visibility(&mut tokens);
        let at = span_of(tokens.peek());
        let Some(name) = name(&mut tokens, fields.len()) else { return refuse(at, "a field's name was expected") };
        let of_type = field_type(&mut tokens);
        if of_type.is_empty() {
            return refuse(at, "a field's type was expected");
        }
        fields.push(Field { name, of_type });
    }
    Ok(fields)
}

/// Takes a type, up to the comma behind it.
fn field_type(tokens: &mut Tokens) -> TokenStream {
    let (mut depth, mut is_arrow) = (0_usize, false);
    let mut of_type = Vec::new();
    for token in tokens.by_ref() {
        if let TokenTree::Punct(punct) = &token {
            match punct.as_char() {
                ',' if depth == 0 => break,
                '<' => depth += 1,
                '>' if !is_arrow => depth = depth.saturating_sub(1),
                _ => {}
            }
            is_arrow = punct.as_char() == '-' && punct.spacing() == Spacing::Joint;
        }
        of_type.push(token);
    }
    of_type.into_iter().collect()
}
