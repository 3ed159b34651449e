//! The paths in code: imported, written out, or inside a macro call.

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};
use syn::{ItemUse, UseTree};

/// A path as it is written; a macro's name ends with `!`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) path: Vec<String>,
    /// Its name here, if it is an import.
    pub(super) imported_as: Option<String>,
}

impl Named {
    /// Says whether it contains these words in sequence.
    pub(super) fn says(&self, words: &str) -> bool {
        let words: Vec<&str> = words.split("::").collect();
        self.path.windows(words.len()).any(|part| part == words)
    }
}

/// Returns all paths in the code. A single name is a path too.
pub(super) fn paths(code: TokenStream) -> Vec<Named> {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let mut found = Vec::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        index += 1;
        match token {
            // `impl Trait + use<'a>` is not an import.
            token if is_word(token, "use") && !is_punct(tokens.get(index), '<') => {
                let length = tokens[index..]
                    .iter()
                    .position(|token| is_punct(Some(token), ';'));
                let end = length.map_or(tokens.len(), |length| index + length + 1);
                found.extend(imported(&tokens[index - 1..end]));
                index = end;
            }
            token if is_word(token, "mod") => {
                // The name of a declared item is not a use of it.
                index += 1;
                if let Some(TokenTree::Group(inside)) = tokens.get(index) {
                    found.extend(paths(inside.stream()).into_iter().map(one_level_out));
                    index += 1;
                }
            }
            TokenTree::Ident(first) => {
                let mut path = vec![first.to_string()];
                while let Some(next) = next_segment(&tokens[index..]) {
                    path.push(next);
                    index += 3;
                }
                if is_called_as_macro(&tokens[index..]) {
                    path.last_mut().unwrap().push('!');
                }
                found.push(Named {
                    path,
                    imported_as: None,
                });
            }
            TokenTree::Group(group) => found.extend(paths(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    found
}

fn next_segment(tokens: &[TokenTree]) -> Option<String> {
    match tokens {
        [
            TokenTree::Punct(a),
            TokenTree::Punct(b),
            TokenTree::Ident(name),
            ..,
        ] if a.as_char() == ':' && a.spacing() == Spacing::Joint && b.as_char() == ':' => {
            Some(name.to_string())
        }
        _ => None,
    }
}

fn is_called_as_macro(tokens: &[TokenTree]) -> bool {
    let called = matches!(tokens.get(1), Some(TokenTree::Group(group)) if group.delimiter() != Delimiter::None);
    is_punct(tokens.first(), '!') && called
}

fn is_punct(token: Option<&TokenTree>, letter: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == letter)
}

fn imported(import: &[TokenTree]) -> Vec<Named> {
    let import: ItemUse = syn::parse2(import.iter().cloned().collect()).unwrap();
    let mut found = Vec::new();
    flatten(&import.tree, &mut Vec::new(), &mut found);
    found
}

fn flatten(tree: &UseTree, above: &mut Vec<String>, found: &mut Vec<Named>) {
    let mut add = |name: String, imported_as: Option<String>| {
        let mut path = above.clone();
        path.extend((name != "self").then_some(name));
        found.push(Named { path, imported_as });
    };
    match tree {
        UseTree::Path(path) => {
            above.push(path.ident.to_string());
            flatten(&path.tree, above, found);
            above.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            add("self".to_owned(), above.last().cloned());
        }
        UseTree::Name(name) => add(name.ident.to_string(), Some(name.ident.to_string())),
        UseTree::Rename(name) => add(name.ident.to_string(), Some(name.rename.to_string())),
        UseTree::Glob(_) => add("self".to_owned(), None),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, above, found);
            }
        }
    }
}

/// A path inside a module's braces, as seen from outside. Imports there do not name anything outside.
fn one_level_out(mut named: Named) -> Named {
    if named.path.first().is_some_and(|first| first == "super") {
        "self".clone_into(&mut named.path[0]);
        if named.path.get(1).is_some_and(|second| second == "super") {
            named.path.remove(0);
        }
    }
    named.imported_as = None;
    named
}

pub(super) fn is_word(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}
