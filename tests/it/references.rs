//! Checks the references in the texts on safety and reliability and in the index of cases: source files and
//! functions, tests, case files and their cases must exist. A promise with a missing proof is no promise.
//!
//! A reference is a code span: `FILE`, `FILE::FUNCTION`, or a case file followed by titles in quotation
//! marks, within the same paragraph or table cell.

use std::path::{Path, PathBuf};

/// Possible roots of a reference.
const ROOTS: [&str; 4] = ["", "tests/", "tests/it/", "tests/cases/"];

fn read(file: &str) -> Option<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    ROOTS
        .iter()
        .find_map(|start| std::fs::read_to_string(root.join(start).join(file)).ok())
}

/// Returns the number of references in a text, and the broken ones.
fn follow(text: &str) -> (usize, Vec<String>) {
    let (mut count, mut dead) = (0, Vec::new());
    for paragraph in text.split("\n\n") {
        // Titles may be wrapped.
        let words: Vec<&str> = paragraph.split_whitespace().collect();
        let paragraph = words.join(" ");
        let parts: Vec<&str> = paragraph.split('`').collect();
        for pair in parts.get(1..).unwrap_or_default().chunks(2) {
            let (file, function) = match pair[0].split_once("::") {
                Some((file, function)) => (file, Some(function)),
                None => (pair[0], None),
            };
            let ending = Path::new(file).extension();
            let is_case_file = ending.is_some_and(|ending| ending == "txt");
            if !(is_case_file || ending.is_some_and(|ending| ending == "rs")) {
                continue;
            }
            count += 1;
            let Some(source) = read(file) else {
                dead.push(format!("there is no file {file}"));
                continue;
            };
            dead.extend(function.and_then(|name| missing_function(file, &source, name)));
            let cell = pair.get(1).and_then(|text| text.split('|').next());
            for title in titles(cell.filter(|_| is_case_file)) {
                count += 1;
                let wanted = format!("case {title}");
                if !source.lines().any(|line| line == wanted) {
                    dead.push(format!("{file} has no case \"{title}\""));
                }
            }
        }
    }
    (count, dead)
}

fn titles(text: Option<&str>) -> impl Iterator<Item = &str> {
    text.unwrap_or_default().split('"').skip(1).step_by(2)
}

fn missing_function(file: &str, source: &str, name: &str) -> Option<String> {
    let starts = ["(", "<"].map(|next| format!("fn {name}{next}"));
    let is_there = starts.iter().any(|start| source.contains(start));
    (!is_there).then(|| format!("{file} has no function {name}"))
}

#[test]
fn references_of_the_dangers_exist() {
    let (count, dead) = follow(&read("docs/dev/dangers.md").unwrap());
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    assert!(count > 50, "only {count} references were found");
}

#[test]
fn references_of_the_index_of_cases_exist() {
    let (count, dead) = follow(&read("CONFORMANCE.md").unwrap());
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    assert!(count > 100, "only {count} references were found");
}

#[test]
fn references_of_the_reliability_text_exist() {
    let (count, dead) = follow(&read("docs/dev/reliability.md").unwrap());
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    assert!(count > 30, "only {count} references were found");
}

#[test]
fn references_of_the_threat_model_exist() {
    let (count, dead) = follow(&read("SECURITY.md").unwrap());
    assert!(dead.is_empty(), "{}", dead.join("\n"));
    assert!(count > 15, "only {count} references were found");
}

#[test]
fn a_broken_reference_is_reported() {
    let good = "| `containers/newest.txt`: \"a clock step back, three deep\" | as `src/gc.rs` says, \
                \"so\" | `cases.rs::containers` |";
    assert_eq!(follow(good), (4, Vec::new()));
    for (from, to, wanted) in [
        (
            "newest.txt",
            "newst.txt",
            "there is no file containers/newst.txt",
        ),
        (
            "three deep",
            "deep",
            "containers/newest.txt has no case \"a clock step back, deep\"",
        ),
        ("src/gc.rs", "src/cg.rs", "there is no file src/cg.rs"),
        (
            "::containers",
            "::container",
            "cases.rs has no function container",
        ),
    ] {
        assert_eq!(follow(&good.replace(from, to)).1, [wanted]);
    }
}

#[test]
fn the_index_lists_every_document() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let index = std::fs::read_to_string(docs.join("README.md")).unwrap();
    let missing: Vec<PathBuf> = documents()
        .into_iter()
        .filter_map(|file| file.strip_prefix(&docs).ok().map(Path::to_path_buf))
        // The runbooks have an index of their own, which tests hold to the alerts.
        .filter(|file| file != Path::new("README.md") && !file.starts_with("runbooks"))
        .filter(|file| !index.contains(&format!("]({})", file.display())))
        .collect();
    assert!(missing.is_empty(), "docs/README.md lacks {missing:?}");
}

const COLUMNS_MAX: usize = 120;

/// Lines of prose, with their numbers, without code and tables, whose rows cannot be wrapped.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    let lines = text.lines().enumerate();
    lines.filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence && !line.trim_start().starts_with('|')
    })
}

/// Every document: the texts at the top, and all below `docs` and `tests`.
fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut dirs = vec![root.join("docs"), root.join("tests")];
    let mut files = ["README.md", "CHANGELOG.md", "SECURITY.md"]
        .map(|file| root.join(file))
        .to_vec();
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|it| it == "md") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 20, "{files:?}");
    files
}

#[test]
fn prose_fits_its_columns() {
    let mut long = Vec::new();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        for (line, _) in prose(&text).filter(|(_, line)| line.chars().count() > COLUMNS_MAX) {
            long.push(format!("{}:{}", file.display(), line + 1));
        }
    }
    assert!(
        long.is_empty(),
        "over {COLUMNS_MAX} columns: {}",
        long.join(" ")
    );
}

/// A text without its code: fenced blocks and code spans.
fn without_code(text: &str) -> String {
    let parts = text.split("```").step_by(2).collect::<String>();
    parts.split('`').step_by(2).collect()
}

/// The anchor of a heading, as forges make it.
fn anchor(heading: &str) -> String {
    let letters = heading.trim_start_matches('#').trim().chars();
    letters
        .filter(|it| it.is_alphanumeric() || [' ', '-', '_'].contains(it))
        .flat_map(char::to_lowercase)
        .map(|it| if it == ' ' { '-' } else { it })
        .collect()
}

fn has_heading(file: &Path, wanted: &str) -> bool {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let text: String = text.split("```").step_by(2).collect();
    let mut headings = text.lines().filter(|line| line.starts_with('#'));
    headings.any(|line| anchor(line) == wanted)
}

/// Links of a document to files and headings that do not exist.
fn dead_links(file: &Path, text: &str) -> Vec<String> {
    let text = without_code(text);
    let links = text.split("](").skip(1).filter_map(|it| it.split_once(')'));
    let links = links.map(|(link, _)| link);
    let is_ours = |link: &&str| !link.starts_with("http") && !link.starts_with("mailto:");
    let is_dead = |link: &&str| {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let target = match path {
            "" => file.to_owned(),
            path => file.parent().unwrap().join(path),
        };
        let is_text = target.extension().is_some_and(|it| it == "md");
        !target.exists() || (is_text && !heading.is_empty() && !has_heading(&target, heading))
    };
    let dead = links.filter(is_ours).filter(is_dead);
    dead.map(|link| format!("{}: {link}", file.display()))
        .collect()
}

#[test]
fn links_lead_to_files_and_headings() {
    let files = documents().into_iter();
    let dead = files.flat_map(|file| dead_links(&file, &std::fs::read_to_string(&file).unwrap()));
    let dead: Vec<String> = dead.collect();
    assert!(dead.is_empty(), "{}", dead.join("\n"));
}

#[test]
fn a_dead_link_is_reported() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let good = "## What it `never` does\n[a](docs/README.md), [b](#what-it-never-does), [c](https://x.example/)";
    assert_eq!(dead_links(&file, good), Vec::<String>::new());
    for bad in ["docs/no.md", "#no-such-heading", "docs/README.md#no"] {
        let dead = dead_links(&file, &format!("[x]({bad})"));
        assert_eq!(dead, [format!("{}: {bad}", file.display())]);
    }
}
