//! The types that code declares.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::paths::is_word;

const KEYWORDS: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

/// Returns the names of all types, traits and aliases that the code declares, in functions and macros too. Associated
/// types are left out: their trait names them.
pub(super) fn types(code: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    collect(code, false, &mut found);
    found
}

/// `associated`: the code is the body of a trait or of an `impl`.
fn collect(code: TokenStream, associated: bool, found: &mut Vec<String>) {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let mut body_follows = false;
    for (index, token) in tokens.iter().enumerate() {
        let declares = KEYWORDS.iter().find(|word| is_word(token, word));
        match (token, tokens.get(index + 1)) {
            (TokenTree::Ident(_), Some(TokenTree::Ident(name))) if declares.is_some() => {
                body_follows = is_word(token, "trait");
                if !(associated && is_word(token, "type")) {
                    found.push(name.to_string());
                }
            }
            // `-> impl Trait` is no item.
            (token, _) if is_word(token, "impl") => {
                body_follows = !matches!(&tokens[..index], [.., TokenTree::Punct(before)] if before.as_char() != ';');
            }
            (TokenTree::Punct(punct), _) if punct.as_char() == ';' => body_follows = false,
            (TokenTree::Group(group), _) => {
                let is_body = group.delimiter() == Delimiter::Brace;
                collect(group.stream(), is_body && body_follows, found);
                body_follows &= !is_body;
            }
            (TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_), _) => {}
        }
    }
}
