//! What the kubelet's settings mean for the litter.

use std::collections::BTreeMap;

use serde_json::json;

use super::kubelet::{self, IgnoredKey};
use super::report::many;
use super::{DoctorFacts, Finding, Severity};
use crate::config::Mode;

/// Dead containers from which on the kubelet's missing cap is worth a change.
const DEAD_MUCH: usize = 200;

pub(super) fn findings(facts: &DoctorFacts) -> Vec<Finding> {
    let mut findings = ignored(&facts.kubelet.ignored_keys);
    findings.extend(unknown(facts));
    findings.extend(no_cap(facts));
    findings.extend(keeps_many(facts));
    findings.extend(images(facts));
    findings
}

/// Returns a finding for each setting that an ignored key was meant for.
fn ignored(keys: &[IgnoredKey]) -> Vec<Finding> {
    let mut by_meant: BTreeMap<&str, &IgnoredKey> = BTreeMap::new();
    for key in keys {
        by_meant.entry(&key.meant).or_insert(key);
    }
    by_meant
        .into_iter()
        .map(|(meant, it)| {
            let value = if it.value.is_empty() {
                "VALUE"
            } else {
                &it.value
            };
            let change = if meant.starts_with("--") {
                format!(
                    "start the kubelet with {meant}={value}, and take {} out of the file",
                    it.key
                )
            } else {
                format!("write {meant}: {value} in its place")
            };
            Finding::new(
                "kubelet-ignored-key",
                Severity::Problem,
                format!(
                    "{} sets {}, which the kubelet silently ignores.",
                    it.file, it.key
                ),
                change,
                json!({ "key": it.key, "file": it.file, "meant": meant, "value": it.value }),
            )
        })
        .collect()
}

fn unknown(facts: &DoctorFacts) -> Option<Finding> {
    let known = &facts.kubelet;
    if known.settings.contains_key(kubelet::MAX_DEAD)
        && known.settings.contains_key(kubelet::IMAGE_HIGH)
    {
        return None;
    }
    let change = match known.within {
        Some("k3s") => {
            "look yourself: kubelet-arg in /etc/rancher/k3s/config.yaml, or let crisweep ask /configz (pods.source \
             kubelet, nodes/configz)"
        }
        Some("kubelite") => {
            "look yourself: /var/snap/microk8s/current/args/kubelet, or let crisweep ask /configz (pods.source \
             kubelet, nodes/configz)"
        }
        Some(_) | None => {
            "in a pod, set hostPID: true (crisweep then reads the kubelet's command line and file), or grant its \
             account get on nodes/configz with pods.source kubelet"
        }
    };
    let what = if known.settings.is_empty() {
        ""
    } else {
        " in full"
    };
    let missing = known.missing.join("; ");
    Some(Finding::new(
        "kubelet-unknown",
        Severity::Info,
        format!("The kubelet's settings are not known{what}: {missing}."),
        change,
        json!({ "missing": known.missing }),
    ))
}

fn no_cap(facts: &DoctorFacts) -> Option<Finding> {
    let cap = facts
        .kubelet
        .number(kubelet::MAX_DEAD)
        .filter(|cap| *cap < 0)?;
    let (dead, flag) = (facts.dead().count(), kubelet::MAX_DEAD);
    Some(Finding::new(
        "kubelet-no-cap",
        Severity::of_much(dead >= DEAD_MUCH),
        format!(
            "The kubelet has no cap on dead containers (--{flag} is {cap}): it keeps the newest of each container of \
             each pod, {} now.",
            many(dead as u64, "dead container"),
        ),
        format!("start the kubelet with --{flag}=200, or let policy.containers.max_dead do it"),
        json!({
            "maximum-dead-containers": cap,
            "dead_containers": facts.lists_read.containers.then_some(dead),
        }),
    ))
}

fn keeps_many(facts: &DoctorFacts) -> Option<Finding> {
    let keeps = facts.kubelet.number(kubelet::MAX_PER_CONTAINER)?;
    let words = match keeps {
        ..0 => "every dead container of each name".to_owned(),
        2.. => format!("{keeps} dead containers of each name"),
        0 | 1 => return None,
    };
    let flag = kubelet::MAX_PER_CONTAINER;
    Some(Finding::new(
        "kubelet-keeps-many",
        Severity::Advice,
        format!("The kubelet keeps {words} (--{flag} is {keeps})."),
        format!("start the kubelet with --{flag}=1, its default"),
        json!({ "maximum-dead-containers-per-container": keeps }),
    ))
}

/// Who removes images first: the kubelet or crisweep.
fn images(facts: &DoctorFacts) -> Option<Finding> {
    let policy = &facts.config.policy.images;
    let high = facts.kubelet.number(kubelet::IMAGE_HIGH)?;
    let low = facts.kubelet.number(kubelet::IMAGE_LOW);
    let age = facts.kubelet.seconds(kubelet::IMAGE_MAX_AGE).unwrap_or(0.0);
    let ours = i64::from(policy.high_threshold_percent);
    let details = json!({
        "kubelet_high": high, "kubelet_low": low, "kubelet_max_age_seconds": age,
        "policy.images.enabled": policy.enabled,
        "policy.images.high_threshold_percent": ours,
        "policy.images.low_threshold_percent": policy.low_threshold_percent,
    });
    let acts = policy.enabled && facts.config.mode == Mode::Enforce;
    let is_kubelet_off = high >= 100 && age <= 0.0;
    let (summary, change) = if is_kubelet_off {
        let (who, change) = if acts {
            ("crisweep alone does", "none needed")
        } else {
            let change = "set policy.images.enabled to true and mode to enforce";
            ("nothing does", change)
        };
        let key = kubelet::IMAGE_HIGH;
        let summary = format!("The kubelet never removes images ({key} is {high}); {who}.");
        (summary, change.to_owned())
    } else if !acts {
        let summary =
            format!("The kubelet alone removes images, from {high} % on, every 5 minutes.");
        (summary, "none needed".to_owned())
    } else if high <= ours {
        let summary = format!(
            "The kubelet removes images first: from {high} % on, every 5 minutes; crisweep from {ours} % on, when it \
             is asked."
        );
        let change = format!(
            "to have crisweep act first, set policy.images.high_threshold_percent below {high}; else none needed"
        );
        (summary, change)
    } else {
        return None;
    };
    let severity = Severity::of_much(!acts && is_kubelet_off);
    Some(Finding::new(
        "image-collection",
        severity,
        summary,
        change,
        details,
    ))
}
