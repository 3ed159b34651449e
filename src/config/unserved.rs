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

fn sections() -> [Section; 4] {
    [thresholds(), alertmanager(), evidence(), web()]
}

fn thresholds() -> Section {
    Section {
        switch: Some(("thresholds.enabled", false.into())),
        keys: vec![
            ("thresholds.enabled", false.into(), parse::boolean),
            ("thresholds.interval", "30s".into(), |g| {
                parse::positive_duration(g).map(|_| true)
            }),
            ("thresholds.exited_containers", 500.into(), some_count),
            ("thresholds.not_ready_sandboxes", 50.into(), some_count),
            ("thresholds.list_limit_ratio", 0.75.into(), |g| {
                parse::number(g, 1).map(|n| n > 0.0)
            }),
            ("thresholds.image_fs_used_percent", 85.into(), |g| {
                parse::number(g, 100).map(|n| n > 0.0)
            }),
        ],
    }
}

fn alertmanager() -> Section {
    Section {
        switch: Some(("alertmanager.poll", [].into())),
        keys: vec![
            ("alertmanager.poll", [].into(), |given| {
                parse::list(given, parse::url).map(|urls| !urls.is_empty())
            }),
            ("alertmanager.interval", "30s".into(), |g| {
                parse::positive_duration(g).map(|_| true)
            }),
        ],
    }
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

fn some_count(given: &Given) -> Parsed<bool> {
    parse::whole_or_off::<u32>(given, u32::MAX.into()).map(|count| count.is_some())
}

fn some_paths(given: &Given) -> Parsed<bool> {
    parse::list(given, parse::path).map(|paths| !paths.is_empty())
}
