//! Checks the sources against the map in `src/lib.rs`: who may import whom, what stays pure, how long a file
//! may be. And against a rule of names: each type has its own.

mod finder;
mod paths;
mod source;
mod types;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use finder::{Use, circles, uses};
use paths::{Named, paths};
use source::{Source, Sources, sources, without_tests};
use types::types;

/// What pure modules must not name.
const IMPURE: &[&str] = &[
    "async",
    "await",
    "tokio",
    "tonic",
    "axum",
    "reqwest",
    "tracing",
    "std::fs",
    "std::net",
    "std::env",
    "std::thread",
    "std::process",
    "Timestamp::now",
    "Instant",
    "SystemTime",
    "Zoned::now",
    "HashMap",
    "HashSet",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "fastrand",
];

/// What no module may name. `prost::encoding` is hidden in prost's documentation: a patch release may change
/// it.
const NOWHERE: &[&str] = &["todo!", "unimplemented!", "dbg!", "prost::encoding"];

const LINES_MAX: usize = 400;

/// The type names that each module may declare: they are used with it, as in `runtime::Error`.
const OF_EACH_MODULE: &[&str] = &["Error", "Config"];

/// A row of the map in `src/lib.rs`.
struct Row {
    module: String,
    may_use: BTreeSet<String>,
    /// It may import each room above it.
    all: bool,
    pure: bool,
}

/// One test for all rules: reading the sources takes seconds.
#[test]
fn sources_keep_the_rules() {
    let sources = sources();
    let uses = uses(&sources);
    let errors: Vec<String> = [
        imports_beside_the_map(&uses),
        circles(&uses),
        impure(&sources),
        long_or_unfinished(&sources),
        types_with_one_name(&sources),
        modules_beside_the_map(&sources),
    ]
    .concat();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn the_map_is_ordered_from_the_bottom_up() {
    let mut above = BTreeSet::new();
    for row in map() {
        let later: Vec<&String> = row.may_use.difference(&above).collect();
        assert!(
            later.is_empty(),
            "{} uses {later:?}, which come later",
            row.module
        );
        above.insert(row.module);
    }
}

fn imports_beside_the_map(all: &BTreeSet<Use>) -> Vec<String> {
    let mut used: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Use { from, to } in all {
        // The crate root joins the modules and contains nothing else.
        if let (Some(from), Some(to)) = (from.first(), to.first())
            && from != to
        {
            used.entry(from).or_default().insert(to);
        }
    }
    let mut errors = Vec::new();
    for row in map() {
        let used = used.remove(row.module.as_str()).unwrap_or_default();
        let may_use: BTreeSet<&str> = row.may_use.iter().map(String::as_str).collect();
        let module = &row.module;
        errors.extend(
            used.difference(&may_use)
                .map(|other| format!("{module} may not use {other}")),
        );
        if row.all {
            continue;
        }
        errors.extend(
            may_use
                .difference(&used)
                .map(|other| format!("{module} does not use {other}")),
        );
    }
    errors
}

fn impure(sources: &Sources) -> Vec<String> {
    let pure: BTreeSet<String> = map()
        .into_iter()
        .filter(|row| row.pure)
        .map(|row| row.module)
        .collect();
    assert_eq!(pure.len(), 2, "model and gc are pure");
    let mut errors = Vec::new();
    for (module, source) in sources {
        if module.first().is_some_and(|room| pure.contains(room)) {
            let said = said(source, IMPURE);
            errors.extend(said.map(|word| format!("{}: is pure and says \"{word}\"", source.path)));
        }
    }
    errors
}

fn long_or_unfinished(sources: &Sources) -> Vec<String> {
    let mut errors = Vec::new();
    for source in sources.values() {
        let (path, lines) = (&source.path, source.lines());
        if lines > LINES_MAX {
            errors.push(format!(
                "{path}: {lines} lines of code, at most {LINES_MAX}"
            ));
        }
        errors.extend(said(source, NOWHERE).map(|word| format!("{path}: {word}")));
        if path.ends_with("/mod.rs") {
            errors.push(format!("{path}: modules are name.rs and name/"));
        }
    }
    errors
}

fn types_with_one_name(sources: &Sources) -> Vec<String> {
    let mut files: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for source in sources.values() {
        for name in types(source.code.clone()) {
            files.entry(name).or_default().insert(&source.path);
        }
    }
    files
        .into_iter()
        .filter(|(name, files)| files.len() > 1 && !OF_EACH_MODULE.contains(&name.as_str()))
        .map(|(name, files)| format!("the type name {name} is declared in {files:?}"))
        .collect()
}

fn modules_beside_the_map(sources: &Sources) -> Vec<String> {
    let declared: BTreeSet<&str> = sources
        .keys()
        .filter_map(|module| module.first().map(String::as_str))
        .collect();
    let map = map();
    let mapped: BTreeSet<&str> = map
        .iter()
        .map(|row| row.module.as_str())
        .chain(["main"])
        .collect();
    declared
        .symmetric_difference(&mapped)
        .map(|module| format!("{module} is in the map or in the sources, but not in both"))
        .collect()
}

/// Reads the map; `all` means each row above.
fn map() -> Vec<Row> {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let lib = std::fs::read_to_string(lib).unwrap();
    let mut map: Vec<Row> = Vec::new();
    for line in lib.lines().filter(|line| line.starts_with("//! | [`")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let named = cells[2].split(", ").filter(|name| *name != "-");
        let named = named.map(|name| name.trim_matches('`'));
        let may_use = match cells[2] {
            "all" => map.iter().map(|row| row.module.clone()).collect(),
            _ => named.map(str::to_owned).collect(),
        };
        map.push(Row {
            module: cells[1].trim_matches(['[', '`', ']']).to_owned(),
            may_use,
            all: cells[2] == "all",
            pure: cells[3].starts_with("pure"),
        });
    }
    map
}

fn said<'a>(source: &'a Source, words: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let says = |word: &&str| source.named.iter().any(|named| named.says(word));
    words.iter().copied().filter(says)
}

/// Returns the paths in a text, without its tests.
fn read(text: &str) -> Vec<Named> {
    paths(without_tests(text.parse().unwrap()))
}

fn modules(named: &[Named]) -> BTreeSet<&str> {
    let inside = named
        .iter()
        .filter(|named| named.says("crate") && named.path.len() > 1);
    inside.map(|named| named.path[1].as_str()).collect()
}

#[test]
fn the_reader_sees_all_but_tests() {
    let code = "use crate::{gc, model::{Pods, span as time}};\n// crate::http\n/// crate::cli\nlet x = crate::runtime::A;\n\
                      pub(crate) use crate::{\n    pass::Pass,\n    worker,\n};\nlet urls = \"crate::poll //\"; // async \n\
                      tokio::select! { _ = crate::system::blocking::BlockingPool::new() => {} }\n\
                      impl A { #[cfg(test)] pub(super) fn count(&self) -> [u8; 2] { crisweep_sim::f() } fn f(x: crate::pods::P) {} }\n\
                      #[cfg(test)]\nmod tests { use crisweep_sim; }\n";
    let named = read(code);
    let used = Vec::from_iter(modules(&named));
    assert_eq!(
        used,
        ["gc", "model", "pass", "pods", "runtime", "system", "worker"]
    );
    assert!(
        named
            .iter()
            .any(|named| named.imported_as.as_deref() == Some("time"))
    );
    let says = |words| named.iter().any(|named| named.says(words));
    assert!(says("tokio") && says("tokio::select!") && !says("async") && !says("count"));
}

#[test]
fn the_reader_sees_all_types_but_associated_ones() {
    let code = "pub(crate) struct A<'a>(&'a str); enum B { C(D) } type E = u8;\n\
                      trait F: G { type H; fn f() { struct I; } } impl F for A<'_> { type H = u8; }\n\
                      fn f() -> impl J { type K = u8; } fn g(x: impl J) { type L = u8; }\n\
                      settings! { pub struct M { a: u8 = 1 } } macro_rules! m { ($n:ident) => { struct $n; } }";
    let found = types(code.parse().unwrap());
    assert_eq!(found, ["A", "B", "E", "F", "I", "K", "L", "M"]);
}

#[test]
fn the_reader_sees_a_file_that_begins_with_its_tests() {
    let named = read(
        "#[cfg(test)]\nmod tests;\n\nuse crate::http;\nuse std::{fs::File, io};\nasync fn f() {}\n",
    );
    assert_eq!(Vec::from_iter(modules(&named)), ["http"]);
    let says = |words| named.iter().any(|named| named.says(words));
    assert!(says("async") && says("std::fs") && !says("std::net"));
}

#[test]
fn circles_are_seen_among_neighbours_alone() {
    let room = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<String>>();
    let uses = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .map(|(from, to)| Use {
                from: room(from),
                to: room(to),
            })
            .collect()
    };
    let family = [
        ("a", "a::b"),
        ("a::b", "a"),
        ("a::b::c", "a::d"),
        ("e", "a::b"),
    ];
    assert_eq!(circles(&uses(&family)), [""; 0]);
    let round = [("a::b::c", "a::d"), ("a::d", "a::e::f"), ("a::e", "a::b")];
    assert_eq!(circles(&uses(&round)), ["a: circle b -> d -> e -> b"]);
    assert_eq!(
        circles(&uses(&[("x::y", "z"), ("z::w", "x")])),
        ["crate: circle x -> z -> x"]
    );
}
