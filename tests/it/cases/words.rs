//! Single words of a case file -> values.

use std::time::Duration;

use crisweep::gc::{AgeFrom, KeepPattern, Limit, PodKnowledge, Policy, Verdict};
use crisweep::model::{ConfigSource, ContainerId, ContainerState, PodUid, RemoveReason, Target};
use jiff::SignedDuration;

use super::keep_reasons::keep_reasons;

pub(crate) fn unknown(word: &str) -> String {
    format!("unknown word \"{word}\"")
}

fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_error| format!("\"{text}\" is no age"))
}

/// Reads an age; `-5m` is five minutes in the future.
pub(crate) fn age(text: &str) -> Result<SignedDuration, String> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let age = if digits == "0" {
        Duration::ZERO
    } else {
        duration(digits)?
    };
    Ok(SignedDuration::try_from(age).unwrap() * sign)
}

pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or(format!("\"{text}\" is no label"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn percent(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().filter(|number| *number <= 100);
    number.ok_or_else(|| format!("\"{text}\" is no percentage"))
}

/// Reads a size: `7`, `2KiB`, `3MiB`, `4GiB`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
    let found = units
        .iter()
        .find_map(|(unit, bytes)| text.strip_suffix(unit).map(|number| (number, *bytes)));
    let (number, unit) = found.unwrap_or((text, 1_u64));
    let number: Option<u64> = number.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("\"{text}\" is no size"))
}

/// Reads `POD/NAME#ATTEMPT`.
pub(crate) fn container_name(text: &str) -> Result<(&str, &str, u32), String> {
    let wrong = || format!("\"{text}\" is not POD/NAME#ATTEMPT");
    let (pod, rest) = text.split_once('/').ok_or_else(wrong)?;
    let (name, attempt) = rest.split_once('#').ok_or_else(wrong)?;
    Ok((pod, name, attempt.parse().map_err(|_error| wrong())?))
}

pub(crate) fn container_state(word: &str) -> Result<ContainerState, String> {
    let found = ContainerState::ALL
        .into_iter()
        .find(|state| state.label() == word);
    found.ok_or_else(|| unknown(word))
}

pub(crate) fn verdict(target: Target, text: &str) -> Result<Verdict, String> {
    let found = match text.split_once(' ') {
        Some(("keep", reason)) => {
            let mut reasons = keep_reasons(target).iter();
            reasons
                .find(|known| known.label() == reason)
                .map(|reason| Verdict::Keep(*reason))
        }
        Some(("remove", reason)) => {
            let mut reasons = RemoveReason::ALL.iter();
            reasons
                .find(|known| known.label() == reason)
                .map(|reason| Verdict::Remove(*reason))
        }
        _ => None,
    };
    found.ok_or_else(|| format!("\"{text}\" is no verdict on {target}"))
}

const STATES: [(PodKnowledge, &str); 6] = [
    (PodKnowledge::Active, "active"),
    (PodKnowledge::Terminated, "terminated"),
    (PodKnowledge::Assumed, "assumed"),
    (PodKnowledge::Deleted, "deleted"),
    (PodKnowledge::Absent, "absent"),
    (PodKnowledge::Unknown, "unknown"),
];

pub(crate) fn pod_state(word: &str) -> Result<PodKnowledge, String> {
    let found = STATES
        .iter()
        .find(|(_, label)| *label == word)
        .map(|(state, _)| *state);
    found.ok_or_else(|| unknown(word))
}

pub(crate) fn state_name(state: PodKnowledge) -> &'static str {
    STATES.iter().find(|(known, _)| *known == state).unwrap().1
}

pub(crate) fn config_source(word: &str) -> Result<ConfigSource, String> {
    Ok(match word {
        "api" => ConfigSource::Api,
        "file" => ConfigSource::File,
        "http" => ConfigSource::Http,
        "other" => ConfigSource::Other,
        word => return Err(unknown(word)),
    })
}

/// Makes up a pod's UID: a UUID, or a static pod's hash.
pub(crate) fn pod_uid(name: &str, is_static: bool) -> PodUid {
    let digits = format!(
        "{:032x}",
        name.bytes().fold(7_u128, |sum, byte| {
            sum.wrapping_mul(0x0100_0000_01b3_0000_0001)
                .wrapping_add(u128::from(byte))
        })
    );
    let uuid = || {
        let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
        parts.map(|(from, to)| &digits[from..to]).join("-")
    };
    PodUid::new(if is_static { digits } else { uuid() }).unwrap()
}

/// Makes up a container's full id, 64 hex digits.
pub(crate) fn container_id(name: &str) -> ContainerId {
    let digits = pod_uid(name, true);
    ContainerId::new(format!("{digits}{digits}")).unwrap()
}

/// Applies one `key=value` of a `policy` line.
pub(crate) fn set_policy(policy: &mut Policy, word: &str) -> Result<(), String> {
    let (key, value) = word.split_once('=').ok_or_else(|| unknown(word))?;
    let limit = || {
        let number = value
            .parse()
            .map_err(|_error| format!("\"{value}\" is no number"))?;
        Ok::<_, String>(Limit::from_config(number))
    };
    let switch = || match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("\"{value}\" is neither on nor off")),
    };
    let time = || {
        if value == "0" {
            Ok(Duration::ZERO)
        } else {
            duration(value)
        }
    };
    let Policy {
        containers,
        sandboxes,
        logs,
        images,
        protect,
        pods,
        assume_finished_after,
        ..
    } = policy;
    match key {
        "min_age" => containers.min_age = time()?,
        "max_per_container" => containers.max_per_container = limit()?,
        "max_dead" => containers.max_dead = limit()?,
        "created_grace" => containers.created_grace = time()?,
        "age_from" if value == "finished" => containers.age_from = AgeFrom::Finished,
        "age_from" if value == "created" => containers.age_from = AgeFrom::Created,
        "include_unknown" => containers.include_unknown = switch()?,
        "keep_first" => containers.keep_first = switch()?,
        "containers" => containers.enabled = switch()?,
        "sandboxes.min_age" => sandboxes.min_age = time()?,
        "sandboxes.max_dead" => sandboxes.max_dead = limit()?,
        "sandboxes" => sandboxes.enabled = switch()?,
        "logs.grace" => logs.grace = time()?,
        "logs" => logs.enabled = switch()?,
        "images" => images.enabled = switch()?,
        "images.high" => images.high_threshold_percent = percent(value)?,
        "images.low" => images.low_threshold_percent = percent(value)?,
        "images.min_age" => images.min_age = time()?,
        "images.max_age" => images.max_age = Some(time()?).filter(|age| !age.is_zero()),
        "images.keep" => images
            .keep
            .push(KeepPattern::new(value).map_err(|_error| format!("\"{value}\" is no pattern"))?),
        "protect.namespace" => {
            protect.namespaces.insert(value.to_owned());
        }
        "protect.label" => protect.labels.push(match value.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (value.to_owned(), None),
        }),
        "settle" => pods.settle = time()?,
        "quiet" => pods.quiet = time()?,
        "assume_finished_after" => *assume_finished_after = Some(time()?),
        _ => return Err(unknown(key)),
    }
    Ok(())
}
