//! Holds the sources to the map in `src/lib.rs`: who may use whom, what stays pure, how long a file
//! may be.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a pure module never says.
const IMPURE: &[&str] = &[
    "async ",
    ".await",
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
    "println!",
    "fastrand",
];

const LINES_MAX: usize = 400;

/// A row of the map in `src/lib.rs`.
struct Row {
    module: String,
    may_use: BTreeSet<String>,
    pure: bool,
}

impl Row {
    fn may_use(&self, module: &str) -> bool {
        module == self.module || self.may_use.contains(module) || self.may_use.contains("all")
    }
}

struct Source {
    path: String,
    module: String,
    /// The code, without comments and without its tests.
    code: String,
}

#[test]
fn modules_use_only_whom_they_may() {
    let map = map();
    let mut errors = Vec::new();
    for source in sources() {
        // Where everything comes together.
        if ["main", "lib"].contains(&source.module.as_str()) {
            continue;
        }
        let Some(row) = map.iter().find(|row| row.module == source.module) else {
            let (path, module) = (&source.path, &source.module);
            errors.push(format!(
                "{path}: module \"{module}\" is not in the map of src/lib.rs"
            ));
            continue;
        };
        let strangers = uses(&source.code)
            .into_iter()
            .filter(|used| !row.may_use(used));
        errors.extend(
            strangers.map(|used| format!("{}: {} may not use {used}", source.path, row.module)),
        );
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn pure_modules_stay_pure() {
    let pure: Vec<Row> = map().into_iter().filter(|row| row.pure).collect();
    assert!(pure.len() >= 3, "model, gc and report are pure");
    let mut errors = Vec::new();
    for source in sources() {
        if !pure.iter().any(|row| row.module == source.module) {
            continue;
        }
        for word in IMPURE.iter().filter(|word| source.code.contains(**word)) {
            errors.push(format!("{}: is pure and says \"{word}\"", source.path));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn files_are_short_and_finished() {
    let mut errors = Vec::new();
    for source in sources() {
        let lines = source
            .code
            .lines()
            .filter(|line| !line.trim().is_empty())
            .count();
        if lines > LINES_MAX {
            errors.push(format!(
                "{}: {lines} lines of code, at most {LINES_MAX}",
                source.path
            ));
        }
        // The last is hidden in prost's documentation: a patch release may change it.
        for word in ["todo!", "unimplemented!", "dbg!", "prost::encoding"] {
            if source.code.contains(word) {
                errors.push(format!("{}: {word}", source.path));
            }
        }
        if source.path.ends_with("/mod.rs") {
            errors.push(format!("{}: modules are name.rs and name/", source.path));
        }
    }
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn the_map_has_every_module_and_no_other() {
    let lib = std::fs::read_to_string(root().join("lib.rs")).unwrap();
    let declared: BTreeSet<String> = lib
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect();
    let mapped: BTreeSet<String> = map().into_iter().map(|row| row.module).collect();
    assert_eq!(mapped, declared);
}

fn map() -> Vec<Row> {
    let lib = std::fs::read_to_string(root().join("lib.rs")).unwrap();
    let rows = lib.lines().filter(|line| line.starts_with("//! | [`"));
    rows.map(|line| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        Row {
            module: cells[1].trim_matches(['[', '`', ']']).to_owned(),
            may_use: cells[2]
                .split(", ")
                .filter(|name| *name != "-")
                .map(str::to_owned)
                .collect(),
            pure: cells[3].starts_with("pure"),
        }
    })
    .collect()
}

#[test]
fn the_reader_of_sources_sees_what_it_must() {
    let code = strip(
        "use crate::{gc, model::Pods};\n// crate::http\n/// tokio\nlet x = crate::cri::A;\n\
                      use crate::report::{A, B};\nuse crate::{\n    pass::Pass,\n    worker,\n};\n\
                      #[cfg(test)]\nmod tests { use crate::sim; }\n",
    );
    let used: Vec<String> = uses(&code).into_iter().collect();
    assert_eq!(used, ["cri", "gc", "model", "pass", "report", "worker"]);
    assert!(!code.contains("tokio") && !code.contains("http"));
    let urls = strip("let a = \"http://tokio\"; // async \n");
    assert!(urls.contains("http://tokio") && !urls.contains("async"));
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn sources() -> Vec<Source> {
    let mut files = Vec::new();
    let mut directories = vec![root()];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => directories.push(path),
                Some(end) if end == "rs" => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    assert!(files.len() > 5, "the sources were not found");
    files.into_iter().map(|file| source(&file)).collect()
}

fn source(file: &Path) -> Source {
    let inside = file.strip_prefix(root()).unwrap();
    let first = inside
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap();
    Source {
        path: format!("src/{}", inside.display()),
        module: first.trim_end_matches(".rs").to_owned(),
        code: if inside
            .iter()
            .any(|part| part == "tests" || part == "tests.rs")
        {
            String::new()
        } else {
            strip(&std::fs::read_to_string(file).unwrap())
        },
    }
}

/// Drops comments, and the tests at the end of a file.
fn strip(text: &str) -> String {
    let code = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let mut stripped = String::new();
    for line in code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
    {
        stripped.push_str(line.split(" // ").next().unwrap_or_default());
        stripped.push('\n');
    }
    stripped
}

/// Returns the modules that the code names after `crate::`.
fn uses(code: &str) -> BTreeSet<String> {
    let mut used = BTreeSet::new();
    for rest in code.split("crate::").skip(1) {
        match rest.strip_prefix('{') {
            None => used.extend(word(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut start = true;
                for (index, letter) in group.char_indices() {
                    match letter {
                        '}' if depth == 0 => break,
                        '{' => depth += 1,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        _ if start && depth == 0 && letter.is_ascii_lowercase() => {
                            used.extend(word(&group[index..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    used
}

/// The word that the text begins with, if it can be a module.
fn word(text: &str) -> Option<String> {
    let word: String = text
        .chars()
        .take_while(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
        .collect();
    word.starts_with(|letter: char| letter.is_ascii_lowercase())
        .then_some(word)
}
