//! Every key that this version serves, with its default and its check: the one place of both.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::given::Given;
use super::parse::{self, Parsed, Refusal, must};
use super::reader::Reader;
use super::{
    AlertRoute, Alertmanager, Brakes, Collect, Config, Gc, Mode, Quarantine, Runtime, State,
    Thresholds, Web,
};
use crate::gc::{
    AgeFrom, ContainerPolicy, ImagePolicy, KeepPattern, Limit, LogPolicy, PodPolicy, Policy,
    Protect, SandboxPolicy,
};
use crate::model::{Target, Targets, UnknownTarget};
use crate::state::{JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN};
use crate::telemetry::{self, Log, LogFormat};

/// The longest frame that gRPC can announce.
const MESSAGE_MAX: u64 = u32::MAX as u64;
/// More than any node holds, and far from overflowing anything.
const COUNT_MAX: i128 = 1_000_000_000;

/// Reads everything; what is wrong is left in `reader.problems`.
pub(super) fn read(reader: &mut Reader, hints: &super::NodeHints) -> Config {
    let config = Config {
        runtime: runtime(reader),
        collect: Collect {
            max_age: reader.get("collect.max_age", "10s", parse::duration),
        },
        node_name: node_name(reader, hints),
        mode: reader.choice(
            "mode",
            ("enforce", Mode::Enforce),
            &[("observe", Mode::Observe)],
        ),
        policy: policy(reader),
        gc: gc(reader),
        quarantine: quarantine(reader),
        pods: super::pods::read(reader, hints),
        alerts: reader.get("alerts", [], |given| parse::list(given, route)),
        thresholds: thresholds(reader),
        alertmanager: alertmanager(reader),
        brakes: brakes(reader),
        state: state(reader),
        web: web(reader),
        log: log(reader),
        effective: Vec::new(),
        strange: Vec::new(),
    };
    super::unserved::read(reader);
    reader.refuse_unknown();
    Config {
        effective: std::mem::take(&mut reader.effective),
        strange: std::mem::take(&mut reader.strange),
        ..config
    }
}

fn runtime(r: &mut Reader) -> Runtime {
    Runtime {
        endpoint: r.get("runtime.endpoint", Given::Null, |g| {
            parse::optional(g, parse::endpoint)
        }),
        image_endpoint: r.get("runtime.image_endpoint", Given::Null, |g| {
            parse::optional(g, parse::endpoint)
        }),
        timeout: r.get("runtime.timeout", "10s", parse::positive_duration),
        removal_timeout: r.get("runtime.removal_timeout", "60s", parse::positive_duration),
        max_message_bytes: r.get("runtime.max_message_bytes", "128MiB", |given| {
            let bytes = parse::size(given, 1, MESSAGE_MAX)?;
            usize::try_from(bytes).or_else(|_too_big| must(given, "a size that memory can hold"))
        }),
        host_root: r.get("runtime.host_root", "/", parse::path),
        simulated_disk_bytes: None,
    }
}

fn node_name(r: &mut Reader, hints: &super::NodeHints) -> String {
    let be = "a node's name: up to 253 of a-z, 0-9, - and .";
    let is_name = |text: &str| {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        (1..=253).contains(&text.len()) && text.bytes().all(allowed)
    };
    let name = |given: &Given| parse::optional(given, |g| parse::text(g, be, is_name));
    let set: Option<String> = r.get("node.name", Given::Null, name);
    let resolved = match (set, hints.variable.as_deref()) {
        (Some(name), _) => name,
        (None, Some(name)) if is_name(name) => name.to_owned(),
        (None, Some(name)) => {
            r.problem("NODE_NAME", format!("is {name:?}, but must be {be}"));
            return String::new();
        }
        (None, None) => hints.host_name.clone(),
    };
    r.show("node.name", resolved.as_str());
    resolved
}

fn policy(r: &mut Reader) -> Policy {
    let limit = |given: &Given| parse::whole::<i64>(given, -COUNT_MAX, COUNT_MAX);
    let containers = ContainerPolicy {
        enabled: r.get("policy.containers.enabled", true, parse::boolean),
        min_age: r.get("policy.containers.min_age", "1m", parse::duration),
        max_per_container: Limit::from_config(r.get(
            "policy.containers.max_per_container",
            1,
            limit,
        )),
        max_dead: Limit::from_config(r.get("policy.containers.max_dead", 200, limit)),
        created_grace: r.get("policy.containers.created_grace", "1h", parse::duration),
        age_from: r.choice(
            "policy.containers.age_from",
            ("finished", AgeFrom::Finished),
            &[("created", AgeFrom::Created)],
        ),
        include_unknown: r.get("policy.containers.include_unknown", false, parse::boolean),
    };
    r.choice("policy.containers.unmanaged", ("keep", ()), &[]);
    let sandboxes = SandboxPolicy {
        enabled: r.get("policy.sandboxes.enabled", true, parse::boolean),
        min_age: r.get("policy.sandboxes.min_age", "1m", parse::duration),
        max_dead: Limit::from_config(r.get("policy.sandboxes.max_dead", 200, limit)),
    };
    let namespaces = |given: &Given| parse::list(given, parse::namespace);
    let protect = Protect {
        namespaces: r
            .get("policy.protect.namespaces", [], namespaces)
            .into_iter()
            .collect(),
        labels: r.get("policy.protect.labels", [], |given| {
            parse::list(given, parse::label)
        }),
    };
    let pods = PodPolicy {
        settle: r.get("pods.settle", "10s", parse::duration),
        quiet: r.get("pods.quiet", "1m", parse::duration),
    };
    let assume_finished_after = r.get("pods.assume_finished_after", "0s", parse::duration_or_off);
    Policy {
        containers,
        sandboxes,
        images: images(r),
        logs: logs(r),
        protect,
        pods,
        assume_finished_after,
    }
}

fn images(r: &mut Reader) -> ImagePolicy {
    // `None` for what was refused: that must not be compared as well.
    let percent = |given: &Given| parse::whole::<u8>(given, 0, 100).map(Some);
    let pattern = |given: &Given| {
        let text = parse::text(given, "a regular expression", |text| !text.is_empty())?;
        KeepPattern::new(&text).or_else(|error| {
            // The last line says what is wrong; those before it draw where.
            let why = error.to_string();
            let why = why.lines().last().unwrap_or_default();
            must(given, &format!("a regular expression ({})", why.trim()))
        })
    };
    let high = r.get("policy.images.high_threshold_percent", 85, percent);
    let low = r.get("policy.images.low_threshold_percent", 80, percent);
    if let (Some(low), Some(high)) = (low, high)
        && low > high
    {
        let text = format!("is {low}, but must not be above high_threshold_percent, {high}");
        r.problem("policy.images.low_threshold_percent", text);
    }
    ImagePolicy {
        enabled: r.get("policy.images.enabled", true, parse::boolean),
        high_threshold_percent: high.unwrap_or(100),
        low_threshold_percent: low.unwrap_or(100),
        min_age: r.get("policy.images.min_age", "2m", parse::duration),
        max_age: r.get("policy.images.max_age", "0s", parse::duration_or_off),
        prune_unused_after: r.get(
            "policy.images.prune_unused_after",
            "0s",
            parse::duration_or_off,
        ),
        keep: r.get("policy.images.keep", [], |given| {
            parse::list(given, pattern)
        }),
    }
}

fn logs(r: &mut Reader) -> LogPolicy {
    const CONTAINERS_ROOT: &str = "policy.logs.containers_root";
    let pods_root = r.get("policy.logs.pods_root", "/var/log/pods", parse::path);
    let containers_root = r.get(CONTAINERS_ROOT, "/var/log/containers", parse::path);
    // What was refused is empty.
    let are_paths = pods_root.is_absolute() && containers_root.is_absolute();
    let nested = pods_root.starts_with(&containers_root) || containers_root.starts_with(&pods_root);
    if are_paths && nested {
        let text = "must be neither pods_root, nor below nor above it".to_owned();
        r.problem(CONTAINERS_ROOT, text);
    }
    LogPolicy {
        enabled: r.get("policy.logs.enabled", true, parse::boolean),
        grace: r.get("policy.logs.grace", "5m", parse::duration),
        pods_root,
        containers_root,
    }
}

fn gc(r: &mut Reader) -> Gc {
    Gc {
        batch_size: r.get("gc.batch_size", 50, |given| parse::whole(given, 1, 10_000)),
        max_concurrency: r.get("gc.max_concurrency", 8, |given| {
            parse::whole(given, 1, 1_000)
        }),
        max_removals: r.get("gc.max_removals", 0, |given| {
            parse::whole_or_off(given, COUNT_MAX)
        }),
        deadline: r.get("gc.deadline", "10m", parse::duration_or_off),
        batch_pause: r.get("gc.batch_pause", "0s", parse::duration),
        io_pressure_pause_percent: r.get("gc.io_pressure_pause_percent", 20, |given| {
            parse::number_or_off(given, 100)
        }),
        failure_ratio: r.get("gc.failure_ratio", 0.5, |given| {
            parse::number_or_off(given, 1)
        }),
    }
}

fn quarantine(r: &mut Reader) -> Quarantine {
    let base = r.get("quarantine.base", "1m", parse::positive_duration);
    let max = r.get("quarantine.max", "1h", parse::positive_duration);
    if max < base && !max.is_zero() {
        let show = humantime::format_duration;
        let text = format!(
            "is {}, but must not be below quarantine.base, {}",
            show(max),
            show(base)
        );
        r.problem("quarantine.max", text);
    }
    Quarantine { base, max }
}

fn thresholds(r: &mut Reader) -> Thresholds {
    let count = |given: &Given| parse::whole_or_off(given, COUNT_MAX);
    Thresholds {
        enabled: r.get("thresholds.enabled", false, parse::boolean),
        interval: r.get("thresholds.interval", "30s", parse::positive_duration),
        exited_containers: r.get("thresholds.exited_containers", 500, count),
        not_ready_sandboxes: r.get("thresholds.not_ready_sandboxes", 50, count),
        list_limit_ratio: r.get("thresholds.list_limit_ratio", 0.75, |given| {
            parse::number_or_off(given, 1)
        }),
        image_fs_used_percent: r.get("thresholds.image_fs_used_percent", 85, |given| {
            parse::number_or_off(given, 100)
        }),
    }
}

fn alertmanager(r: &mut Reader) -> Alertmanager {
    Alertmanager {
        poll: r.get("alertmanager.poll", [], |given| {
            parse::list(given, parse::alertmanager_url)
        }),
        interval: r.get("alertmanager.interval", "30s", parse::positive_duration),
    }
}

fn brakes(r: &mut Reader) -> Brakes {
    Brakes {
        cooldown: r.get("brakes.cooldown", "1m", parse::duration),
        max_passes_per_hour: r.get("brakes.max_passes_per_hour", 30, |given| {
            parse::whole_or_off(given, 1_000_000)
        }),
        pause: r.get("brakes.pause", false, parse::boolean),
    }
}

fn state(r: &mut Reader) -> State {
    State {
        dir: r.get("state.dir", "/var/lib/crisweep", |given| {
            // What an empty variable says.
            if matches!(given, Given::Text(text) if text.is_empty()) {
                return Ok(None);
            }
            parse::optional(given, parse::path)
        }),
        journal_bytes: r.get("state.journal_bytes", "4MiB", |given| {
            parse::size(given, JOURNAL_BYTES_MIN, JOURNAL_BYTES_MAX)
        }),
    }
}

fn web(r: &mut Reader) -> Web {
    let addresses = |given: &Given| -> Parsed<Vec<SocketAddr>> {
        let addresses = parse::list(given, parse::listen)?;
        let is_double = |(index, address): (usize, &SocketAddr)| {
            address.port() != 0 && addresses.iter().take(index).any(|before| before == address)
        };
        if addresses.is_empty() {
            return Err(Refusal::because(
                "is empty, but must hold at least one address",
            ));
        }
        match addresses.iter().enumerate().find(|pair| is_double(*pair)) {
            Some((_, address)) => Err(Refusal::because(format!("names {address} twice"))),
            None => Ok(addresses),
        }
    };
    Web {
        listen: r.get("web.listen", ["127.0.0.1:20950"], addresses),
        trusted_hosts: r.get("web.trusted_hosts", [], |given| {
            parse::list(given, parse::host)
        }),
    }
}

fn log(r: &mut Reader) -> Log {
    let be = "error, warn, info, debug, trace, or targets such as info,crisweep=debug";
    Log {
        level: r.get("log.level", "info", |g| {
            parse::text(g, be, telemetry::is_filter)
        }),
        format: r.choice(
            "log.format",
            ("text", LogFormat::Text),
            &[("json", LogFormat::Json)],
        ),
    }
}

/// Reads one entry of `alerts`.
fn route(given: &Given) -> Parsed<AlertRoute> {
    let Given::Table(entry) = given else {
        return must(given, "a section with match and targets");
    };
    let mut refused = Vec::new();
    let mut part = |at: &str, refusals| refused.extend(Refusal::below(at, refusals));
    for name in entry
        .keys()
        .filter(|name| !["match", "targets"].contains(&name.as_str()))
    {
        part(
            &format!(".{name}"),
            Refusal::because("is not a known key; known are match, targets"),
        );
    }
    let null = Given::Null;
    let of = |name: &str| entry.get(name).unwrap_or(&null);
    let matches = labels(of("match")).map_err(|refusals| part(".match", refusals));
    let targets = targets(of("targets")).map_err(|refusals| part(".targets", refusals));
    match (matches, targets) {
        (Ok(matches), Ok(targets)) if refused.is_empty() => Ok(AlertRoute { matches, targets }),
        _ => Err(refused),
    }
}

fn labels(given: &Given) -> Parsed<BTreeMap<String, String>> {
    let Given::Table(table) = given else {
        return must(given, "labels and their values");
    };
    if table.is_empty() {
        return Err(Refusal::because(
            "is empty, but must name at least one label",
        ));
    }
    let mut refused = Vec::new();
    let mut labels = BTreeMap::new();
    for (label, value) in table {
        match parse::text(value, "text that is not empty", |text| !text.is_empty()) {
            Ok(value) => drop(labels.insert(label.clone(), value)),
            Err(refusals) => refused.extend(Refusal::below(&format!(".{label}"), refusals)),
        }
    }
    if refused.is_empty() {
        Ok(labels)
    } else {
        Err(refused)
    }
}

fn targets(given: &Given) -> Parsed<std::collections::BTreeSet<Target>> {
    let target = |given: &Given| {
        let word = parse::text(given, "a target's name", |_| true)?;
        word.parse()
            .map_err(|error: UnknownTarget| Refusal::because(format!("is refused: {error}")))
    };
    let targets: Vec<Targets> = parse::list(given, target)?;
    if targets.is_empty() {
        return Err(Refusal::because(
            "is empty, but must name at least one target",
        ));
    }
    Ok(targets
        .into_iter()
        .flat_map(|Targets(targets)| targets)
        .collect())
}

impl Default for super::NodeHints {
    fn default() -> Self {
        let host = rustix::system::uname();
        // The kubelet names its node by the host name in lower case.
        let host_name = host.nodename().to_string_lossy().trim().to_lowercase();
        Self {
            variable: None,
            host_name,
            api_url: None,
        }
    }
}
