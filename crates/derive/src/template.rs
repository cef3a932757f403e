//! Code from templates: text in which `$name` stands for tokens.

use std::iter::Peekable;

use proc_macro::{Group, Span, TokenStream, TokenTree, token_stream};

/// Returns a template's code. Its names of variables are its own, and never those of an
/// application.
///
/// # Panics
///
/// If a template is no code, or lacks a name: these are constants of this crate.
pub(crate) fn fill(template: &str, with: &[(&str, TokenStream)]) -> TokenStream {
    let template: TokenStream = template.parse().expect("a template is made of Rust's tokens");
    filled(template, with)
}

fn filled(template: TokenStream, with: &[(&str, TokenStream)]) -> TokenStream {
    let mut tokens = template.into_iter().peekable();
    let mut code = TokenStream::new();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '$' => code.extend(replaced(&mut tokens, with)),
            TokenTree::Group(group) => {
                let group = Group::new(group.delimiter(), filled(group.stream(), with));
                code.extend([at_our_site(group.into())]);
            }
            token => code.extend([at_our_site(token)]),
        }
    }
    code
}

fn replaced(tokens: &mut Peekable<token_stream::IntoIter>, with: &[(&str, TokenStream)]) -> TokenStream {
    let name = tokens.next().map(|name| name.to_string()).unwrap_or_default();
    let (_, tokens) = with.iter().find(|(one, _)| *one == name).expect("a template's names are all given");
    tokens.clone()
}

fn at_our_site(mut token: TokenTree) -> TokenTree {
    token.set_span(Span::mixed_site());
    token
}
