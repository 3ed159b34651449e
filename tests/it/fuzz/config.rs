//! Configuration files: any content is accepted or refused with a reason, and an accepted configuration is
//! printed in a form that loads to the same.

use std::path::{Path, PathBuf};

use crisweep::config::{Config, Error, Overrides};
use proptest::prelude::*;
use proptest::sample::select;
use yaml_rust2::{Yaml, YamlLoader};

use super::{cases, edited, edits};

const SAMPLE: &str = include_str!("../../../deploy/crisweep.yaml");
const WORDS: &[&str] = &[
    ": ",
    "- ",
    "\n",
    "\n  ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!!str ",
    "|\n",
    ">",
    "'",
    "\"",
    "#",
    "---\n",
    "...\n",
    "<<: *a",
    "? ",
    "~",
    ".nan",
    "-.inf",
    "0x7f",
    "1e400",
    "\t",
    "\u{feff}",
    "\u{85}",
    "99999999999999999999",
    "9999999999999999999999999y",
    "-1",
    "%",
    "= 1\n",
    "\"\"\"",
];

fn load(name: &str, text: &[u8]) -> Result<Config, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path: PathBuf = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    load_file(&path)
}

fn load_file(path: &Path) -> Result<Config, Error> {
    let env = [("NODE_NAME".to_owned(), "n1".to_owned())];
    Config::load(Some(path), env.into_iter(), &Overrides::default())
}

/// It is refused with a key's name or as invalid, or it is accepted and survives a round trip.
fn is_settled(name: &str, text: &[u8]) -> Result<(), TestCaseError> {
    match load(name, text) {
        Ok(config) => {
            let shown = config.effective_yaml();
            let again = load("again.yaml", shown.as_bytes());
            let again = again.map_err(|error| TestCaseError::fail(format!("{error}\n{shown}")))?;
            prop_assert_eq!(again.effective_yaml(), shown);
            prop_assert_eq!(again, config);
        }
        Err(Error::Invalid(problems)) => {
            prop_assert!(!problems.is_empty());
            for problem in problems {
                prop_assert!(!problem.key.is_empty() && !problem.text.is_empty());
            }
        }
        // The first: a file that is not text.
        Err(Error::Read { .. } | Error::Syntax { .. } | Error::NotConfiguration { .. }) => {}
        Err(error) => return Err(TestCaseError::fail(format!("{error:?}"))),
    }
    Ok(())
}

/// Every key of a file, with its section.
fn keys() -> Vec<String> {
    let shown = load("empty.yaml", b"").unwrap().effective_yaml();
    let root = YamlLoader::load_from_str(&shown).unwrap().remove(0);
    let mut keys = Vec::new();
    collect(&root, "", &mut keys);
    assert!(keys.len() > 50, "{keys:?}");
    keys
}

fn collect(yaml: &Yaml, path: &str, keys: &mut Vec<String>) {
    for (key, value) in yaml.as_hash().into_iter().flatten() {
        let path = format!("{path}{}", key.as_str().unwrap());
        keys.push(path.clone());
        collect(value, &format!("{path}."), keys);
    }
}

fn value() -> impl Strategy<Value = String> {
    let words = vec![
        "~",
        "''",
        "[]",
        "{}",
        "0",
        "-1",
        "1",
        "1.0",
        "0.5",
        "100",
        "101",
        "1e3",
        "1e400",
        ".nan",
        ".inf",
        "-.inf",
        "true",
        "no",
        "1s",
        "1ms",
        "0s",
        "1m",
        "584942417y",
        "99999999999999999999s",
        "4MiB",
        "1YiB",
        "-1MiB",
        "[1s]",
        "[a, b]",
        "[[a]]",
        "{a: b}",
        "[{match: {a: b}, targets: [all]}]",
        "[{match: {}, targets: []}]",
        "observe",
        "none",
        "/",
        "relative",
        "\"/a\\0b\"",
        "http://a:99999",
        "http://[::1]:9093",
        "127.0.0.1:0",
        "[\"127.0.0.1:0\"]",
        "[\"[::1]:1\"]",
        "[localhost]",
        "a=b",
        "[a=b, c]",
        "[\"=\"]",
        "9223372036854775808",
        "340282366920938463463374607431768211456",
    ];
    prop_oneof![
        4 => select(words).prop_map(str::to_owned),
        1 => any::<f64>().prop_map(|number| format!("{number:?}")),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => any::<String>().prop_map(|text| serde_json::to_string(&text).unwrap()),
        1 => ("[0-9]{1,22}", select(vec!["ns", "us", "ms", "s", "m", "h", "d", "y", "KiB", "GB"]))
            .prop_map(|(number, unit)| format!("{number}{unit}")),
    ]
}

/// A document that sets some keys, in flow form, which needs no indentation.
fn document() -> impl Strategy<Value = String> {
    let set = (select(keys()), value());
    prop::collection::vec(set, 1..4).prop_map(|sets| {
        let line = |(key, value): (String, String)| {
            let (open, close) = (
                key.replace('.', ": {"),
                "}".repeat(key.matches('.').count()),
            );
            format!("{open}: {value}{close}\n")
        };
        sets.into_iter().map(line).collect()
    })
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_text_is_refused_with_a_reason_or_taken(text: String, edits in edits(WORDS), ending in select(vec!["a.yaml", "a.toml"])) {
        is_settled(ending, &edited(text.into_bytes(), &edits))?;
        is_settled(ending, &edited(Vec::new(), &edits))?;
    }

    #[test]
    fn the_sample_with_mistakes_is_refused_with_a_reason_or_taken(edits in edits(WORDS)) {
        is_settled("a.yaml", &edited(SAMPLE.into(), &edits))?;
    }

    #[test]
    fn any_value_of_any_key_is_refused_by_name_or_taken(text in document()) {
        is_settled("a.yaml", text.as_bytes())?;
    }
}

#[test]
fn a_key_without_a_name_is_shown_as_one() {
    let error = load("a.yaml", b"\"\": 1\n").unwrap_err().to_string();
    assert!(error.starts_with("\"\": "), "{error}");
}

#[test]
fn the_printed_sample_loads_to_the_same_configuration() {
    is_settled("a.yaml", SAMPLE.as_bytes()).unwrap();
}

/// The largest file that is read, with nothing but depth.
#[test]
fn a_document_too_deep_to_follow_is_refused() {
    let deep = |piece: &str| piece.repeat((1 << 20) / piece.len());
    for piece in ["[", "{a: ", "- ", "? ", "a: [", "!!seq [", "&a ["] {
        let error = load("a.yaml", deep(piece).as_bytes()).expect_err(piece);
        assert!(matches!(error, Error::Syntax { .. }), "{piece}: {error:?}");
    }
    for text in [
        format!("a = {}", "[".repeat(1 << 19)),
        format!("a = {}", "{a=".repeat(1 << 18)),
        format!("{}a = 1", "a.".repeat(1 << 18)),
    ] {
        assert!(load("a.toml", text.as_bytes()).is_err(), "{}", &text[..20]);
    }
}

/// Each line contains the one before ten times: a few lines would fill the memory.
#[test]
fn a_document_whose_aliases_expand_too_far_is_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        text += &format!(
            "a{level}: &a{level} [{}]\n",
            [before.as_str(); 10].join(", ")
        );
    }
    let error = load("a.yaml", text.as_bytes()).unwrap_err();
    assert!(matches!(error, Error::Syntax { .. }), "{error:?}");
}

#[test]
fn a_long_text_that_is_repeated_without_end_is_refused() {
    let (long, again) = ("x".repeat(500_000), "*a,".repeat(150_000));
    let error = load("a.yaml", format!("a: &a {long}\nb: [{again}]\n").as_bytes()).unwrap_err();
    assert!(matches!(error, Error::Syntax { .. }), "{error:?}");
}

#[test]
fn an_alias_of_an_earlier_anchor_is_accepted() {
    let text =
        "policy: { protect: { namespaces: &a [kube-system] } }\nweb: { trusted_hosts: *a }\n";
    let config = load("a.yaml", text.as_bytes()).unwrap();
    assert_eq!(config.web.trusted_hosts, ["kube-system"]);
}
