//! The keys of the contract that this version checks but does not serve: it refuses them when they
//! ask for something, rather than ignore them.

use super::given::Given;
use super::parse::{self, Parsed};
use super::reader::Reader;

type Asks = fn(&Given) -> Parsed<bool>;

/// A section: its off switch, if it has one, and its keys with the contract's defaults.
struct Section {
    switch: Option<(&'static str, Given)>,
    keys: Vec<(&'static str, Given, Asks)>,
}

/// Checks every unserved key of every layer.
pub(super) fn read(reader: &mut Reader) {
    for section in sections() {
        let is_off = section.switch.is_some_and(|(key, off)| {
            reader.show(key, off.clone());
            reader
                .find(key, &off)
                .is_some_and(|(given, _)| given == off)
        });
        for (key, default, asks) in &section.keys {
            reader.unserved(key, default, is_off, asks);
        }
    }
}

fn sections() -> [Section; 2] {
    [evidence(), web()]
}

fn evidence() -> Section {
    Section {
        switch: Some(("evidence.enabled", false.into())),
        keys: vec![
            ("evidence.enabled", true.into(), parse::boolean),
            ("evidence.log_tail_bytes", "64KiB".into(), some_size),
            ("evidence.max_bytes", "256MiB".into(), some_size),
            ("evidence.max_age", "7d".into(), some_duration),
            ("evidence.required", false.into(), parse::boolean),
        ],
    }
}

fn web() -> Section {
    Section {
        switch: None,
        keys: vec![
            ("web.config_file", Given::Null, |given| {
                let be = "a path";
                let path = parse::optional(given, |g| parse::text(g, be, |text| !text.is_empty()));
                path.map(|path| path.is_some())
            }),
            ("web.bearer_token_files.read", [].into(), some_paths),
            ("web.bearer_token_files.act", [].into(), some_paths),
        ],
    }
}

fn some_duration(given: &Given) -> Parsed<bool> {
    parse::duration_or_off(given).map(|duration| duration.is_some())
}

fn some_size(given: &Given) -> Parsed<bool> {
    parse::size(given, 0, u64::MAX).map(|size| size > 0)
}

fn some_paths(given: &Given) -> Parsed<bool> {
    parse::list(given, parse::path).map(|paths| !paths.is_empty())
}
