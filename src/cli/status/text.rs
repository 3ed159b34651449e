//! The status as one screen.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use crate::cli::command::text::{outcome_ink, titled};
use crate::cli::screen::{Ink, Screen};
use crate::model::{NodeFigures, Outcome, Pass, escape, short_duration, short_size};

/// Where the text of each part begins.
const INDENT: usize = 12;

/// Formats the answer of `GET /api/v1/status`.
pub(super) fn of(status: &Value, judged: &str, screen: &Screen) -> String {
    let mut text = format!("{}\n\n", escape::line(judged));
    let parts = [
        ("node", node(status)),
        ("runtime", runtime(status)),
        ("containers", states(status, "containers")),
        ("sandboxes", states(status, "sandboxes")),
        ("lists", lists(status)),
        ("image fs", image_filesystem(status)),
        ("pods", pods(status)),
        ("config", config(status)),
        ("state", state(status)),
        ("brakes", brakes(status)),
        ("would go", removable(status)),
        ("quarantine", quarantine(status)),
        ("running", running(status)),
        ("last pass", last_pass(status)),
    ];
    for (name, words) in parts {
        if words.is_empty() {
            continue;
        }
        let words = escape::line(&words);
        text.push_str(&titled(screen.columns, name, &words, INDENT));
    }
    text
}

/// Returns the colour of a line.
pub(super) fn ink(line: &str) -> Option<Ink> {
    if line.starts_with("OK: ") {
        return Some(Ink::Good);
    }
    if line.starts_with("PROBLEM: ") {
        return Some(Ink::Bad);
    }
    if line.starts_with("UNKNOWN: ") || line.starts_with("brakes ") {
        return Some(Ink::Doubt);
    }
    let outcome = line.strip_prefix("last pass")?.split_whitespace().next()?;
    outcome_ink(outcome).filter(|ink| *ink != Ink::Good)
}

/// Returns a part; `null` where it is missing.
fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn node(status: &Value) -> String {
    let mode = text(at(status, "/mode"));
    let paused = match at(status, "/paused").as_bool() {
        Some(true) => ", paused (brakes.pause)",
        _ => "",
    };
    let up = at(status, "/uptime_seconds").as_i64().map(|seconds| {
        let up = short_duration(SignedDuration::from_secs(seconds));
        format!(", up for {up}")
    });
    format!(
        "{}, mode {mode}{paused}, crisweep {}{}",
        text(at(status, "/node")),
        text(at(status, "/version")),
        up.unwrap_or_default()
    )
}

/// What of the configuration's file is not in force; nothing if all is.
fn config(status: &Value) -> String {
    let config = at(status, "/config");
    if let Some(error) = at(config, "/last_reload_error").as_str() {
        return format!("the last reload was refused, the one before is in force: {error}");
    }
    let keys = at(config, "/needs_restart")
        .as_array()
        .into_iter()
        .flatten();
    let keys = keys.map(text).collect::<Vec<_>>().join(", ");
    if keys.is_empty() {
        return keys;
    }
    format!("changed, in force after a restart: {keys}")
}

/// Why the state directory is not written; nothing if it is.
fn state(status: &Value) -> String {
    let errors = at(status, "/state/errors")
        .as_object()
        .into_iter()
        .flatten();
    let errors = errors
        .map(|(_, why)| text(why))
        .collect::<Vec<_>>()
        .join("; ");
    if errors.is_empty() {
        return errors;
    }
    format!("not written: {errors}")
}

fn runtime(status: &Value) -> String {
    let runtime = at(status, "/runtime");
    let name = format!(
        "{} {}",
        text(at(runtime, "/name")),
        text(at(runtime, "/version"))
    );
    let age = look_age(status);
    let age = |what| age.map(|age| format!(", {what} {} ago", short_duration(age)));
    let endpoint = text(at(runtime, "/endpoint"));
    if let Some(error) = at(runtime, "/error").as_str() {
        let place = if error.contains(endpoint) {
            String::new()
        } else {
            format!(" at {endpoint}")
        };
        return format!("down: {error}{place}{}", age("asked").unwrap_or_default());
    }
    let state = match (at(runtime, "/up").as_bool(), name.trim()) {
        (Some(true), name) => name.to_owned(),
        (_, "") => "gives no answer".to_owned(),
        (_, name) => format!("{name}, slow or hung"),
    };
    format!("{state} at {endpoint}{}", age("seen").unwrap_or_default())
}

fn look_age(status: &Value) -> Option<SignedDuration> {
    let age = at(status, "/look/age_seconds").as_f64()?;
    SignedDuration::try_from_secs_f64(age).ok()
}

fn states(status: &Value, list: &str) -> String {
    let Some(counts) = at(at(status, "/states"), &format!("/{list}")).as_object() else {
        // Without the runtime, its own line says why.
        let is_up = at(status, "/runtime/error").is_null();
        let error = at(status, &format!("/look/errors/{list}")).as_str();
        let why = error.filter(|_| is_up).map(|error| format!(": {error}"));
        return format!("not read{}", why.unwrap_or_default());
    };
    let total: u64 = counts.values().filter_map(Value::as_u64).sum();
    let words = |state: &str| state.replace("notready", "not ready");
    let counts = match counted(Some(counts), |n, state| format!("{n} {}", words(state))) {
        Some(counts) => format!("{total}: {counts}"),
        None => "none".to_owned(),
    };
    match at(status, &format!("/lists/{list}/why")).as_str() {
        Some(why) => format!("{counts}; incomplete: {why}"),
        None => counts,
    }
}

/// Returns the counts of an object that are not 0, in words; `None` if there are none.
fn counted(
    counts: Option<&Map<String, Value>>,
    words: impl Fn(&Value, &str) -> String,
) -> Option<String> {
    let counts = counts.into_iter().flatten();
    let counts = counts.filter(|(_, n)| n.as_u64() != Some(0));
    let counts: Vec<String> = counts.map(|(what, n)| words(n, what)).collect();
    (!counts.is_empty()).then(|| counts.join(", "))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn lists(status: &Value) -> String {
    let lists = at(status, "/lists").as_object();
    let list = |(name, list): (&String, &Value)| {
        let (bytes, limit) = (
            at(list, "/bytes").as_u64()?,
            at(list, "/limit_bytes").as_u64()?,
        );
        let percent = (100.0 * bytes as f64 / limit.max(1) as f64).floor();
        let limit = short_size(limit);
        let part = match at(list, "/complete").as_bool() {
            Some(false) => ", incomplete",
            _ => "",
        };
        Some(format!(
            "{name} {} of {limit} ({percent:.0}%{part})",
            short_size(bytes)
        ))
    };
    let lists: Vec<String> = lists.into_iter().flatten().filter_map(list).collect();
    lists.join("; ")
}

fn image_filesystem(status: &Value) -> String {
    let number = |path: &str| at(status, path).as_f64();
    let size = |path: &str| {
        at(status, path)
            .as_u64()
            .map(short_size)
            .unwrap_or_default()
    };
    let Some(ratio) = number("/figures/image_fs_used_ratio") else {
        return "not measured".to_owned();
    };
    let used = size("/figures/image_fs_used_bytes");
    let free = size("/figures/image_fs_available_bytes");
    let high = number("/marks/image_high_percent");
    let marks = high.zip(number("/marks/image_low_percent"));
    let marks = marks.map(|(high, low)| format!("; images go above {high}% down to {low}%"));
    let marks = marks.unwrap_or_default();
    format!("{:.1}% used ({used}, {free} free){marks}", 100.0 * ratio)
}

fn pods(status: &Value) -> String {
    let pods = at(status, "/pods");
    // The state already says that the source failed.
    let why = |why: &str| format!(": {}", why.trim_start_matches("the pod source failed: "));
    let why = at(pods, "/why").as_str().map(why);
    let cached = match at(pods, "/from_cache").as_bool() {
        Some(true) => ", from the API server's watch cache",
        _ => "",
    };
    if !pods.is_object() {
        return String::new();
    }
    let why = why.unwrap_or_default();
    match (text(at(pods, "/source")), text(at(pods, "/state"))) {
        // The source "none" is in the state "none".
        (source, state) if source == state => format!("{source}{why}"),
        (source, state) => format!("{source}, {state}{cached}{why}"),
    }
}

fn brakes(status: &Value) -> String {
    let holding = at(status, "/brakes/holding").as_array();
    let holding: Vec<&str> = holding.into_iter().flatten().map(text).collect();
    if holding.is_empty() {
        return String::new();
    }
    let is_for_all = holding
        .iter()
        .any(|it| ["pause", "fleet-hold"].contains(it));
    let whom = if is_for_all {
        "all passes without --force"
    } else {
        "automatic passes"
    };
    format!("hold {whom}: {}", holding.join(", "))
}

fn removable(status: &Value) -> String {
    let removable = at(status, "/removable");
    if removable.is_null() {
        return "unknown: no plan is possible on the last look".to_owned();
    }
    let due = match counted(removable.as_object(), objects) {
        Some(counts) => format!("{counts}, in a pass now (crisweep plan)"),
        None => "nothing, in a pass now".to_owned(),
    };
    match counted(at(status, "/at_risk").as_object(), objects) {
        Some(counts) => format!("{due}; at a risk up to {counts} (crisweep plan says why)"),
        None => due,
    }
}

/// Writes a number with its target, in the singular for one.
fn objects(number: &Value, target: &str) -> String {
    let noun = match (number.as_u64(), target) {
        (Some(1), "sandboxes") => "sandbox",
        (Some(1), _) => target.trim_end_matches('s'),
        _ => target,
    };
    format!("{number} {noun}")
}

fn quarantine(status: &Value) -> String {
    let classes = at(status, "/quarantined_sandboxes").as_object();
    let counts = counted(classes, |n, class| format!("{n} {class}"));
    let counts = counts.map(|it| format!("sandboxes whose removal failed: {it}"));
    counts.unwrap_or_default()
}

fn running(status: &Value) -> String {
    let waiting = at(status, "/waiting").as_array().map_or(0, Vec::len);
    let waiting = match waiting {
        0 => String::new(),
        1 => ", 1 pass waits".to_owned(),
        n => format!(", {n} passes wait"),
    };
    let pass: Option<Pass> = serde_json::from_value(at(status, "/running").clone()).ok();
    let Some(pass) = pass else {
        return waiting.trim_start_matches(", ").to_owned();
    };
    let mut begun = pass.targets.iter().filter(|(_, report)| report.begun);
    let now = begun
        .next_back()
        .map_or_else(String::new, |(target, report)| {
            let gone = report.planned.saturating_sub(report.remaining);
            format!(", {target}: {gone} of {}", report.planned)
        });
    format!(
        "pass {}{now}{waiting} (crisweep passes {})",
        pass.id, pass.id
    )
}

fn last_pass(status: &Value) -> String {
    let pass: Option<Pass> = serde_json::from_value(at(status, "/last_pass").clone()).ok();
    let Some(pass) = pass else {
        let is_known = status.get("last_pass").is_some();
        return if is_known { "none yet" } else { "" }.to_owned();
    };
    let outcome = pass.outcome.map_or("unfinished", Outcome::label);
    // By the service's clock. Its last look may be older than the pass.
    let looked: Option<Timestamp> = text(at(status, "/look/taken_at")).parse().ok();
    let ago = looked.zip(pass.finished_at).map(|(looked, then)| {
        let ago =
            short_duration(looked.duration_since(then) + look_age(status).unwrap_or_default());
        format!(" {ago} ago")
    });
    let removed: u64 = pass.targets.values().map(|it| it.removed).sum();
    let failed: u64 = pass.targets.values().map(|it| it.failed).sum();
    let mut words = format!("{outcome}{}, {removed} removed", ago.unwrap_or_default());
    if failed > 0 {
        words.push_str(&format!(", {failed} failed"));
    }
    let figure = |of: fn(&NodeFigures) -> Option<u64>| {
        Some((of(pass.before.as_ref()?)?, of(pass.after.as_ref()?)?))
    };
    let changes = [
        ("exited containers", figure(|it| it.exited_containers)),
        ("dead sandboxes", figure(|it| it.not_ready_sandboxes)),
    ];
    for (what, change) in changes {
        if let Some((before, after)) = change {
            words.push_str(&format!("; {what} {before} → {after}"));
        }
    }
    words.push_str(&format!(" (crisweep passes {})", pass.id));
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Cause;

    #[test]
    fn the_runtime_is_seen_only_when_it_answers() {
        let at = "/run/cri.sock";
        let look = json!({ "age_seconds": 4.0 });
        for (part, wanted) in [
            (
                json!({ "up": true, "name": "containerd", "version": "1.7.24", "error": null, "endpoint": at }),
                "containerd 1.7.24 at /run/cri.sock, seen 4s ago",
            ),
            (
                json!({ "up": false, "name": "containerd", "version": "1.7.24", "error": null, "endpoint": at }),
                "containerd 1.7.24, slow or hung at /run/cri.sock, seen 4s ago",
            ),
            (
                json!({ "up": false, "name": null, "version": null, "endpoint": at,
                    "error": "Version: no connection to /run/cri.sock: no such file or directory" }),
                "down: Version: no connection to /run/cri.sock: no such file or directory, asked 4s ago",
            ),
            (
                json!({ "up": false, "name": null, "version": null, "endpoint": at, "error": "Version: unavailable" }),
                "down: Version: unavailable at /run/cri.sock, asked 4s ago",
            ),
        ] {
            assert_eq!(runtime(&json!({ "runtime": part, "look": look })), wanted);
        }
        let never = json!({ "runtime": { "up": false, "endpoint": at } });
        assert_eq!(runtime(&never), "gives no answer at /run/cri.sock");
    }

    #[test]
    fn the_last_pass_ended_before_now_and_not_before_the_last_look() {
        let then: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let mut pass = Pass::queued("p".to_owned(), Cause::Manual.into(), [], then);
        pass.finished_at = Some(then);
        let look =
            |at, age| json!({ "look": { "taken_at": at, "age_seconds": age }, "last_pass": pass });
        let ended = |status| last_pass(&status).split(',').next().unwrap().to_owned();
        let old = look("2026-01-01T00:00:00Z", 100.5);
        assert_eq!(ended(old), "unfinished 1m30s ago");
        let young = look("2026-01-01T00:00:15Z", 0.0);
        assert_eq!(ended(young), "unfinished 5s ago");
    }

    #[test]
    fn a_list_that_was_not_read_says_why_where_the_runtime_answers() {
        let look = json!({ "errors": { "containers": "ListContainers: no answer within 2s" } });
        let up = json!({ "runtime": { "up": true }, "look": look });
        assert_eq!(
            states(&up, "containers"),
            "not read: ListContainers: no answer within 2s"
        );
        assert_eq!(states(&up, "sandboxes"), "not read");
        let down = json!({ "runtime": { "up": false, "error": "no connection" }, "look": look });
        assert_eq!(states(&down, "containers"), "not read");
    }

    #[test]
    fn what_is_not_in_force_or_not_written_is_named_and_nothing_else() {
        let well = json!({
            "config": { "last_reload_error": null, "needs_restart": [] },
            "state": { "errors": {} },
        });
        assert_eq!(
            (config(&well), state(&well)),
            (String::new(), String::new())
        );
        let changed = json!({ "config": { "needs_restart": ["node.name", "state.dir"] } });
        let words = "changed, in force after a restart: node.name, state.dir";
        assert_eq!(config(&changed), words);
        let full = json!({ "state": { "errors": { "database": "no space left" } } });
        assert_eq!(state(&full), "not written: no space left");
    }

    #[test]
    fn no_pod_source_is_said_once_and_one_object_in_the_singular() {
        let none = json!({ "pods": { "source": "none", "state": "none", "why": "no pod source" } });
        assert_eq!(pods(&none), "none: no pod source");
        let why = "the pod source failed: gone";
        let failed = json!({ "pods": { "source": "file", "state": "failed", "why": why } });
        assert_eq!(pods(&failed), "file, failed: gone");
        let counts =
            json!({ "removable": { "containers": 1, "images": 2, "logs": 1, "sandboxes": 1 } });
        assert_eq!(
            removable(&counts),
            "1 container, 2 images, 1 log, 1 sandbox, in a pass now (crisweep plan)"
        );
    }
}
