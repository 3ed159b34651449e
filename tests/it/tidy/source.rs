//! Reads the sources as the compiler does: from `src/lib.rs` along each `mod`, as tokens, without comments
//! and without test code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::Item;
use syn::parse::{ParseStream, Parser};

use super::finder::Module;
use super::paths::{Named, is_word, paths};

/// The sources of the program, by module.
pub(super) type Sources = BTreeMap<Module, Source>;

/// A source file of the program.
#[derive(Debug)]
pub(super) struct Source {
    /// Its path from the package's root.
    pub(super) path: String,
    /// The code, without its tests.
    pub(super) code: TokenStream,
    /// The paths that the code names.
    pub(super) named: Vec<Named>,
}

impl Source {
    /// Returns the number of lines with code.
    pub(super) fn lines(&self) -> usize {
        let mut lines = BTreeSet::new();
        collect_lines(self.code.clone(), &mut lines);
        lines.len()
    }
}

/// Reads the library's sources and `main`, as a separate module.
pub(super) fn sources() -> Sources {
    let mut sources = Sources::new();
    let mut known = BTreeSet::new();
    for start in ["lib", "main"] {
        let module = (start == "main").then(|| start.to_owned());
        let file = root().join(start).with_extension("rs");
        read(
            &file,
            module.into_iter().collect(),
            false,
            &mut sources,
            &mut known,
        );
    }
    let unknown: Vec<_> = files_below(&root())
        .into_iter()
        .filter(|file| !known.contains(file))
        .collect();
    assert!(unknown.is_empty(), "no module declares {unknown:?}");
    sources
}

/// Reads a file and the modules that it declares; test modules are only marked as `known`.
fn read(
    file: &Path,
    module: Module,
    is_test: bool,
    sources: &mut Sources,
    known: &mut BTreeSet<PathBuf>,
) {
    let text = std::fs::read_to_string(file);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    known.insert(file.to_owned());
    let all: TokenStream = text.parse().unwrap();
    let code = if is_test {
        TokenStream::new()
    } else {
        without_tests(all.clone())
    };
    let below = if file == root().join("lib.rs") {
        root()
    } else {
        file.with_extension("")
    };
    let built: BTreeSet<PathBuf> = declared(code.clone(), &below).into_iter().collect();
    for child in declared(all, &below) {
        let mut inside = module.clone();
        inside.extend(child.file_stem().map(|name| name.display().to_string()));
        let is_test = !built.contains(&child);
        read(&child, inside, is_test, sources, known);
    }
    if !is_test {
        let path = format!("src/{}", file.strip_prefix(root()).unwrap().display());
        let named = paths(code.clone());
        sources.insert(module, Source { path, code, named });
    }
}

/// Returns the files of the modules that the code declares.
fn declared(code: TokenStream, below: &Path) -> Vec<PathBuf> {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let mut files = Vec::new();
    for three in tokens.windows(3) {
        let [keyword, name, end] = three else {
            continue;
        };
        if !is_word(keyword, "mod") {
            continue;
        }
        let name = below.join(name.to_string());
        match end {
            TokenTree::Punct(end) if end.as_char() == ';' => files.push(name.with_extension("rs")),
            TokenTree::Group(inside) => files.extend(declared(inside.stream(), &name)),
            TokenTree::Punct(_) | TokenTree::Ident(_) | TokenTree::Literal(_) => {}
        }
    }
    files
}

/// Drops documentation and test-only items.
pub(super) fn without_tests(code: TokenStream) -> TokenStream {
    let tokens: Vec<TokenTree> = code.into_iter().collect();
    let mut kept = TokenStream::new();
    let mut index = 0;
    while let Some(token) = tokens.get(index) {
        let attribute = attribute(&tokens[index..]);
        match attribute.as_ref().map(|(words, _)| words.as_str()) {
            Some("cfg (test)") => {
                let rest = after_item(&tokens[index..]);
                kept.extend(without_tests(rest));
                return kept;
            }
            Some(words) if words.starts_with("cfg (") && words.contains("test") => {
                panic!("what is built with `{words}` may be a test's: say `cfg(test)` alone")
            }
            Some(words) if words.starts_with("doc =") => {
                index += attribute.map_or(1, |(_, tokens)| tokens);
                continue;
            }
            _ => {}
        }
        kept.extend([match token {
            TokenTree::Group(group) => TokenTree::Group(group_without_tests(group)),
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => token.clone(),
        }]);
        index += 1;
    }
    kept
}

fn group_without_tests(group: &Group) -> Group {
    let mut kept = Group::new(group.delimiter(), without_tests(group.stream()));
    kept.set_span(group.span());
    kept
}

/// Returns the attribute at the start of the tokens as text, and its number of tokens.
fn attribute(tokens: &[TokenTree]) -> Option<(String, usize)> {
    let is = |index: usize, letter| matches!(tokens.get(index), Some(TokenTree::Punct(punct)) if punct.as_char() == letter);
    if !is(0, '#') {
        return None;
    }
    let at = if is(1, '!') { 2 } else { 1 };
    let Some(TokenTree::Group(group)) = tokens.get(at) else {
        return None;
    };
    let is_attribute = group.delimiter() == Delimiter::Bracket;
    is_attribute.then(|| (group.stream().to_string(), at + 1))
}

/// Returns the tokens after the first item. (A method is an item too.)
fn after_item(code: &[TokenTree]) -> TokenStream {
    let item_and_rest = |input: ParseStream<'_>| {
        input.parse::<Item>()?;
        input.parse::<TokenStream>()
    };
    let rest = item_and_rest.parse2(code.iter().cloned().collect());
    rest.unwrap_or_else(|error| {
        let line = code[0].span().start().line;
        panic!("what only tests are built with must be an item: {error} in line {line}")
    })
}

fn collect_lines(code: TokenStream, lines: &mut BTreeSet<usize>) {
    for token in code {
        let spans = match &token {
            TokenTree::Group(group) => [group.span_open(), group.span_close()],
            TokenTree::Ident(_) | TokenTree::Punct(_) | TokenTree::Literal(_) => [token.span(); 2],
        };
        let lines_of = |span: &Span| span.start().line..=span.end().line;
        lines.extend(spans.iter().flat_map(lines_of));
        if let TokenTree::Group(group) = token {
            collect_lines(group.stream(), lines);
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
    files
}
