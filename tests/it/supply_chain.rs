//! Holds the crates that crisweep is built from to `deny.toml`, without cargo-deny and without network, and checks
//! the bill of materials. Advisories need their database: `make deny`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn toml(file: &str) -> Value {
    let path = root().join(file);
    let source = config::File::from(path).format(config::FileFormat::Toml);
    let read = config::Config::builder().add_source(source).build();
    read.unwrap().try_deserialize().unwrap()
}

fn texts(list: &Value) -> BTreeSet<&str> {
    let list = list.as_array().unwrap();
    list.iter().map(|text| text.as_str().unwrap()).collect()
}

/// Runs a command that has to succeed, and never reaches the network.
fn run(command: &mut Command) -> Output {
    let output = command.env("CARGO_NET_OFFLINE", "true").current_dir(root());
    let output = output.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// The metadata of every crate that a build or a test on this system uses.
fn crates() -> Vec<Value> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--locked", "--format-version", "1"]);
    // Crates for other systems need not be there.
    command.args(["--filter-platform", &target]);
    let metadata: Value = serde_json::from_slice(&run(&mut command).stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// Says whether the allowed licences satisfy an SPDX expression; some crates write `OR` as `or` or `/`.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let expression = expression.replace('/', " OR ").replace(" or ", " OR ");
    let expression = expression.replace('(', " ( ").replace(')', " ) ");
    let mut words = expression.split_whitespace().peekable();
    any_of(&mut words, allowed) == Some(true) && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Evaluates alternatives; `None` if the expression is malformed.
fn any_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> Option<bool> {
    let mut is_allowed = all_of(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        is_allowed |= all_of(words, allowed)?;
    }
    Some(is_allowed)
}

fn all_of(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> Option<bool> {
    let mut is_allowed = licence(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        is_allowed &= licence(words, allowed)?;
    }
    Some(is_allowed)
}

fn licence(words: &mut Words<'_>, allowed: &BTreeSet<&str>) -> Option<bool> {
    if words.next_if_eq(&"(").is_some() {
        let is_allowed = any_of(words, allowed)?;
        return (words.next()? == ")").then_some(is_allowed);
    }
    let mut name = words.next()?.to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", words.next()?);
    }
    Some(allowed.contains(name.as_str()))
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = ["MIT", "ISC", "Apache-2.0 WITH LLVM-exception"].into();
    for (expression, wanted) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only/MIT", true),
        ("GPL-3.0-only or MIT", true),
        ("MIT AND ISC", true),
        ("MIT AND GPL-3.0-only", false),
        ("(GPL-3.0-only OR ISC) AND MIT", true),
        ("MIT OR (ISC", false),
        ("Apache-2.0", false),
        ("Apache-2.0 WITH LLVM-exception OR Apache-2.0", true),
        ("MIT GPL-3.0-only", false),
        ("", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), wanted, "{expression}");
    }
}

#[test]
fn every_crate_has_an_allowed_licence() {
    let deny = toml("deny.toml");
    let allowed = texts(&deny["licenses"]["allow"]);
    let crates = crates();
    assert!(crates.len() > 100, "{}", crates.len());
    let refused = crates.iter().filter(|it| {
        let licence = it["license"].as_str().unwrap_or_default();
        !is_allowed(licence, &allowed)
    });
    let refused: Vec<String> = refused
        .map(|it| format!("{} {}: {}", it["name"], it["version"], it["license"]))
        .collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn every_locked_crate_has_an_allowed_source_and_a_checksum() {
    let (deny, lock) = (toml("deny.toml"), toml("Cargo.lock"));
    assert_eq!(deny["sources"]["unknown-registry"], "deny");
    assert_eq!(deny["sources"]["unknown-git"], "deny");
    let registries = texts(&deny["sources"]["allow-registry"]);
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let Some(source) = package["source"].as_str() else {
            assert!(name.starts_with("crisweep"), "{name} has no source");
            continue;
        };
        let registry = source.strip_prefix("registry+");
        assert!(
            registry.is_some_and(|it| registries.contains(it)),
            "{name}: {source}"
        );
        let checksum = package["checksum"].as_str().unwrap_or_default();
        assert_eq!(checksum.len(), 64, "{name}");
    }
}

#[test]
fn no_banned_crate_is_locked() {
    let (deny, lock) = (toml("deny.toml"), toml("Cargo.lock"));
    let banned = deny["bans"]["deny"].as_array().unwrap();
    let banned: BTreeSet<&str> = banned
        .iter()
        .map(|it| it["crate"].as_str().unwrap())
        .collect();
    assert!(banned.contains("openssl-sys"));
    for package in lock["package"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        assert!(!banned.contains(name), "{name} is banned by deny.toml");
    }
}

fn bill_of_materials(date: Option<&str>) -> Vec<u8> {
    let mut command = Command::new("deploy/sbom.sh");
    command.env_remove("SOURCE_DATE_EPOCH");
    if let Some(date) = date {
        command.env("SOURCE_DATE_EPOCH", date);
    }
    run(&mut command).stdout
}

#[test]
fn the_bill_of_materials_has_every_field_that_cyclonedx_asks_for() {
    let text = bill_of_materials(None);
    assert_eq!(bill_of_materials(None), text, "the same bytes each time");
    let bom: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(
        (&bom["bomFormat"], &bom["specVersion"], &bom["version"]),
        (&"CycloneDX".into(), &"1.6".into(), &1.into())
    );
    let serial = bom["serialNumber"].as_str().unwrap();
    let serial = serial.strip_prefix("urn:uuid:").unwrap();
    let groups: Vec<usize> = serial.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{serial}");
    assert!(serial.bytes().all(|b| b == b'-' || b.is_ascii_hexdigit()));
    let program = &bom["metadata"]["component"];
    assert_eq!(program["name"], "crisweep");
    assert_eq!(program["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(program["type"], "application");
    let dated = bill_of_materials(Some("1700000000"));
    let dated: Value = serde_json::from_slice(&dated).unwrap();
    assert_eq!(dated["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
}

#[test]
fn the_bill_of_materials_describes_each_crate_with_licence_and_checksum() {
    let bom: Value = serde_json::from_slice(&bill_of_materials(None)).unwrap();
    let lock = toml("Cargo.lock");
    let locked = lock["package"].as_array().unwrap();
    let components = bom["components"].as_array().unwrap();
    assert!(components.len() > 100, "{}", components.len());
    let mut refs = BTreeSet::from([bom["metadata"]["component"]["bom-ref"].as_str().unwrap()]);
    for component in components {
        let name = component["name"].as_str().unwrap();
        let package = locked
            .iter()
            .find(|it| it["name"] == name && it["version"] == component["version"]);
        let package = package.unwrap_or_else(|| panic!("{component} is not in Cargo.lock"));
        assert_eq!(component["type"], "library");
        assert_eq!(component["purl"], component["bom-ref"]);
        assert!(refs.insert(component["bom-ref"].as_str().unwrap()));
        let licence = component["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.is_empty() && !licence.contains('/'), "{name}");
        if package["source"].is_null() {
            assert!(name.starts_with("crisweep-"), "{name}");
            continue;
        }
        let version = component["version"].as_str().unwrap();
        assert_eq!(component["purl"], format!("pkg:cargo/{name}@{version}"));
        let hash = &component["hashes"][0];
        assert_eq!(
            (&hash["alg"], &hash["content"]),
            (&"SHA-256".into(), &package["checksum"])
        );
    }
    let dependencies = bom["dependencies"].as_array().unwrap();
    assert_eq!(dependencies.len(), refs.len());
    for dependency in dependencies {
        assert!(refs.contains(dependency["ref"].as_str().unwrap()));
        assert!(texts(&dependency["dependsOn"]).is_subset(&refs));
    }
}
