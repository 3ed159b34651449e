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
    low_above_high(reader);
}

fn low_above_high(reader: &mut Reader) {
    let mut percent = |key, default: i32| {
        let default = default.into();
        let given = reader
            .find(key, &default)
            .map_or(default, |(given, _)| given);
        parse::number(&given, 100).ok()
    };
    let low = percent("policy.images.low_threshold_percent", 80);
    let high = percent("policy.images.high_threshold_percent", 85);
    if let (Some(low), Some(high)) = (low, high)
        && low > high
    {
        let text = format!("is {low}, but must not be above high_threshold_percent, {high}");
        reader.problem("policy.images.low_threshold_percent", text);
    }
}

fn sections() -> [Section; 6] {
    [
        images(),
        logs(),
        thresholds(),
        alertmanager(),
        evidence(),
        web(),
    ]
}

fn images() -> Section {
    Section {
        switch: Some(("policy.images.enabled", false.into())),
        keys: vec![
            ("policy.images.enabled", true.into(), parse::boolean),
            ("policy.images.high_threshold_percent", 85.into(), |g| {
                parse::number(g, 100).map(|_| true)
            }),
            ("policy.images.low_threshold_percent", 80.into(), |g| {
                parse::number(g, 100).map(|_| true)
            }),
            ("policy.images.min_age", "2m".into(), |g| {
                parse::duration(g).map(|_| true)
            }),
            ("policy.images.max_age", "0s".into(), some_duration),
            (
                "policy.images.prune_unused_after",
                "0s".into(),
                some_duration,
            ),
            ("policy.images.keep", [].into(), some_texts),
        ],
    }
}

fn logs() -> Section {
    Section {
        switch: Some(("policy.logs.enabled", false.into())),
        keys: vec![
            ("policy.logs.enabled", true.into(), parse::boolean),
            ("policy.logs.grace", "5m".into(), |g| {
                parse::duration(g).map(|_| true)
            }),
            ("policy.logs.pods_root", "/var/log/pods".into(), some_path),
            (
                "policy.logs.containers_root",
                "/var/log/containers".into(),
                some_path,
            ),
        ],
    }
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

fn some_path(given: &Given) -> Parsed<bool> {
    parse::optional(given, parse::path).map(|path| path.is_some())
}

fn some_paths(given: &Given) -> Parsed<bool> {
    parse::list(given, parse::path).map(|paths| !paths.is_empty())
}

fn some_texts(given: &Given) -> Parsed<bool> {
    let item = |given: &Given| parse::text(given, "text", |text| !text.is_empty());
    parse::list(given, item).map(|texts| !texts.is_empty())
}
