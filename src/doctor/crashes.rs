//! Containers that end and are started again in short time.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::litter::is_plain;
use super::owners::{Controller, Owners};
use super::report::many;
use super::{ContainerExit, DoctorFacts, FINDINGS_MAX, Finding, Severity};
use crate::model::{
    Container, ContainerId, ContainerState, Evidence, PodRef, PodSandbox, PodUid, Text, ending,
    short_duration,
};

/// Fewer attempts than this are no loop.
const ATTEMPTS_MIN: u32 = 3;
/// Restarts in an hour that are a loop.
const RESTARTS_1H: u32 = 3;
/// Restarts in a day that are a loop.
const RESTARTS_24H: u32 = 5;
/// Two attempts that follow each other this closely are a loop: the kubelet's longest back-off is 5 minutes.
const GAP_MAX: SignedDuration = SignedDuration::from_mins(10);
/// Attempts from which on such a gap counts.
const GAP_ATTEMPTS: u32 = 5;
/// Names that are looked at closely.
const NAMES_MAX: usize = 40;
/// Dead containers of a name whose status is asked.
const ENDS_OF_NAME: usize = 2;

/// The containers of one name of one pod, newest attempt first.
#[derive(Debug)]
struct ContainerAttempts<'a> {
    pod: &'a PodRef,
    container: &'a Text,
    rows: Vec<&'a Container>,
}

impl ContainerAttempts<'_> {
    fn attempts(&self) -> u32 {
        self.rows.first().map_or(0, |row| row.attempt)
    }

    /// Says whether the newest record is young: an old loop that runs now is over.
    fn moves(&self, facts: &DoctorFacts) -> bool {
        self.rows.first().is_some_and(|row| {
            let exit = row.finished_at;
            let exit = exit.filter(|_| row.state == ContainerState::Exited);
            facts.is_within(row.created_at.max(exit.unwrap_or(row.created_at)), 1)
        })
    }
}

/// Returns the names that may be in a loop, those with the most attempts first.
fn names(facts: &DoctorFacts) -> Vec<ContainerAttempts<'_>> {
    let mut by_name: BTreeMap<(&PodUid, &Text), ContainerAttempts<'_>> = BTreeMap::new();
    for row in &facts.containers {
        let Some(pod) = row.pod.as_deref() else {
            continue;
        };
        let empty = || ContainerAttempts {
            pod,
            container: &row.name,
            rows: Vec::new(),
        };
        let name = by_name.entry((&pod.uid, &row.name)).or_insert_with(empty);
        name.rows.push(row);
    }
    let mut names: Vec<ContainerAttempts<'_>> = by_name.into_values().collect();
    for name in &mut names {
        name.rows
            .sort_by_key(|row| std::cmp::Reverse((row.attempt, row.created_at)));
    }
    names.retain(|name| name.attempts() >= ATTEMPTS_MIN && name.moves(facts));
    names.sort_by_key(|name| std::cmp::Reverse(name.attempts()));
    names.truncate(NAMES_MAX);
    names
}

/// Returns the names whose kept evidence tells more, and the containers whose status does.
pub(super) fn wanted(facts: &DoctorFacts) -> (Vec<(String, String)>, Vec<ContainerId>) {
    let names = names(facts);
    let of = |name: &ContainerAttempts<'_>| (name.pod.uid.to_string(), name.container.to_string());
    let dead = |name| exited(name).take(ENDS_OF_NAME).map(|row| row.id.clone());
    let dead = names.iter().flat_map(dead);
    (names.iter().map(of).collect(), dead.collect())
}

fn exited<'a>(name: &ContainerAttempts<'a>) -> impl Iterator<Item = &'a Container> {
    let rows = name.rows.iter().copied();
    rows.filter(|row| row.state == ContainerState::Exited)
}

/// One attempt of which the end is known.
#[derive(Clone, Debug)]
struct EndedAttempt {
    attempt: u32,
    end: Option<ContainerExit>,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    /// Its evidence.
    kept: Option<AttemptEvidence>,
}

/// What is kept of one attempt.
#[derive(Clone, Copy, Debug)]
struct AttemptEvidence {
    number: u64,
    /// Its log's end is kept, and not empty.
    has_log: bool,
}

#[derive(Debug)]
struct Loop<'a> {
    pod: &'a PodRef,
    name: &'a Text,
    attempts: u32,
    restarts_1h: u32,
    restarts_24h: u32,
    /// Newest first.
    ends: Vec<EndedAttempt>,
    /// A record of an attempt that ended is left. The kubelet leaves none of a pod of which it restarts all containers.
    has_dead: bool,
}

impl<'a> Loop<'a> {
    fn of(facts: &DoctorFacts, name: &ContainerAttempts<'a>) -> Option<Self> {
        let ends = ends(facts, name);
        let listed = name.rows.iter().map(|row| (row.attempt, row.created_at));
        let ended = ends.iter().map(|it| (it.attempt, it.created_at));
        let known: Vec<(u32, Timestamp)> = listed.chain(ended).collect();
        let attempts = name.attempts();
        let of_pod = |it: &PodSandbox| it.pod.as_ref().is_some_and(|pod| pod.uid == name.pod.uid);
        let born = facts.sandboxes.iter();
        let born = born.filter(|sandbox| sandbox.attempt == 0 && of_pod(sandbox));
        let born = born.map(|sandbox| sandbox.created_at).min();
        // Attempts between two known ones lie between them. A pod that is younger than the window had all in it.
        let restarts = |hours| {
            if born.is_some_and(|at| facts.is_within(at, hours)) {
                return attempts;
            }
            let within = known
                .iter()
                .filter(|(attempt, at)| *attempt > 0 && facts.is_within(*at, hours));
            let first = within.map(|(attempt, _)| *attempt).min();
            first.map_or(0, |first| (attempts + 1).saturating_sub(first))
        };
        let (restarts_1h, restarts_24h) = (restarts(1), restarts(24));
        let previous = attempts.checked_sub(1);
        let at = |attempt: Option<u32>| {
            let found = known.iter().find(|it| Some(it.0) == attempt);
            found.map(|(_, at)| *at)
        };
        let gap = at(Some(attempts)).zip(at(previous));
        let is_close = gap.is_some_and(|(last, before)| last.duration_since(before) <= GAP_MAX);
        let is_loop = restarts_1h >= RESTARTS_1H
            || restarts_24h >= RESTARTS_24H
            || is_close && attempts >= GAP_ATTEMPTS;
        is_loop.then_some(Self {
            pod: name.pod,
            name: name.container,
            attempts,
            restarts_1h,
            restarts_24h,
            ends,
            has_dead: exited(name).next().is_some(),
        })
    }

    fn last(&self) -> Option<&ContainerExit> {
        self.ends.iter().find_map(|it| it.end.as_ref())
    }

    /// Returns the latest ends in a row that failed.
    fn streak(&self) -> Vec<&EndedAttempt> {
        let known = self.ends.iter().filter(|it| it.end.is_some());
        let failed = |it: &&EndedAttempt| it.end.as_ref().is_some_and(|end| end.exit_code != 0);
        known.take_while(failed).collect()
    }
}

fn ends(facts: &DoctorFacts, name: &ContainerAttempts<'_>) -> Vec<EndedAttempt> {
    let mut ends: BTreeMap<u32, EndedAttempt> = BTreeMap::new();
    let of_pod = |it: &&Evidence| {
        let uid = it.pod.as_ref().map(|pod| pod.uid.as_str());
        it.container == **name.container && uid == Some(name.pod.uid.as_str())
    };
    for it in facts.past.iter().flat_map(|past| &past.ends).filter(of_pod) {
        let end = it.exit_code.map(|exit_code| ContainerExit {
            exit_code,
            reason: it.reason.clone(),
        });
        ends.entry(it.attempt).or_insert(EndedAttempt {
            attempt: it.attempt,
            end,
            created_at: it.created_at,
            finished_at: it.finished_at,
            kept: Some(AttemptEvidence {
                number: it.number,
                has_log: it.log.bytes > 0,
            }),
        });
    }
    for row in exited(name) {
        let ended = ends.entry(row.attempt).or_insert(EndedAttempt {
            attempt: row.attempt,
            end: None,
            created_at: row.created_at,
            finished_at: row.finished_at.filter(|_| !row.exit_undated),
            kept: None,
        });
        let known = ended.end.take();
        ended.end = known.or_else(|| facts.ends.get(&row.id).cloned());
    }
    ends.into_values().rev().collect()
}

/// The loops, one finding for each owner and container name.
pub(super) fn findings(facts: &DoctorFacts, owners: &Owners<'_>) -> Vec<Finding> {
    let mut groups: BTreeMap<(Controller, &Text), Vec<Loop<'_>>> = BTreeMap::new();
    let names = names(facts);
    for found in names.iter().filter_map(|name| Loop::of(facts, name)) {
        let last = found.ends.first();
        let born = last.map_or(facts.taken_at, |it| it.created_at);
        let mut owner = owners.owner(&found.pod.uid, &found.pod.namespace, born);
        if owner.name.is_empty() {
            // Two pods without a known owner have nothing in common.
            owner.name = found.pod.name.to_string();
        }
        groups.entry((owner, found.name)).or_default().push(found);
    }
    let mut findings: Vec<Finding> = groups
        .into_iter()
        .filter_map(|((owner, _), mut loops)| {
            loops.sort_by_key(|it| std::cmp::Reverse((it.restarts_24h, it.attempts)));
            finding(facts, &owner, &loops)
        })
        .collect();
    findings.sort_by_key(|it| (it.severity, std::cmp::Reverse(it.cost)));
    let more = findings.len().saturating_sub(FINDINGS_MAX);
    findings.truncate(FINDINGS_MAX);
    if more > 0 {
        findings.push(Finding::new(
            "crash-loops-more",
            Severity::Info,
            format!("{} more are not listed.", many(more as u64, "crash loop")),
            "repair the listed ones first",
            json!({ "more": more }),
        ));
    }
    findings
}

fn finding(facts: &DoctorFacts, owner: &Controller, loops: &[Loop<'_>]) -> Option<Finding> {
    let worst = loops.first()?;
    let restarts: u64 = loops.iter().map(|it| u64::from(it.restarts_24h)).sum();
    let streak = worst.streak();
    let last = worst.last();
    let completes = last.is_some_and(|end| end.exit_code == 0);
    let words = last.map_or("it is not known how it ended".to_owned(), |end| {
        format!("it {}", ending_of(end))
    });
    let who = who(worst, owner);
    let pods = if loops.len() > 1 {
        format!(" ({})", many(loops.len() as u64, "pod"))
    } else {
        String::new()
    };
    let last_at = streak.first().and_then(|it| it.finished_at);
    let first_at = streak.last().and_then(|it| it.finished_at);
    let ago = last_at.map_or_else(String::new, |at| {
        let ago = short_duration(facts.taken_at.duration_since(at));
        format!(", last {ago} ago")
    });
    let (row_bytes, _) = facts.row_bytes();
    let finding = Finding::new(
        "crash-loop",
        if completes {
            Severity::Advice
        } else {
            Severity::Problem
        },
        format!(
            "Container {} of {who}{pods} was restarted at least {} in the last 24 h{ago}: {words}.",
            worst.name,
            many(restarts, "time"),
        ),
        change(worst, owner),
        json!({
            "namespace": owner.namespace, "owner_kind": owner.kind, "owner": owner.name, "container": worst.name,
            "pods": loops.len(), "pod": worst.pod.name, "pod_uid": worst.pod.uid,
            "attempts": worst.attempts,
            "restarts_1h": worst.restarts_1h, "restarts_24h": worst.restarts_24h, "restarts_24h_all_pods": restarts,
            "exit_code": last.map(|it| it.exit_code), "reason": last.map(|it| &it.reason),
            "ending": last.map(|end| ending(Some(end.exit_code), &end.reason)),
            "failures_in_a_row": streak.len(), "first_failure": first_at, "last_failure": last_at,
            "evidence": last_lines(worst).0,
        }),
    );
    Some(finding.costing(restarts.saturating_mul(row_bytes.max(1))))
}

fn who(it: &Loop<'_>, owner: &Controller) -> String {
    if owner.is_pod_itself() {
        return format!("pod {}/{}", owner.namespace, it.pod.name);
    }
    owner.words()
}

fn ending_of(end: &ContainerExit) -> String {
    let words = ending(Some(end.exit_code), &end.reason);
    // `ending` continues a title; here a sentence goes on.
    match words.split(' ').next() {
        Some("killed") => format!("was {words}"),
        _ => words,
    }
}

/// Returns the command that shows the last lines of the log, and what it does; names that are not Kubernetes' are left
/// out.
fn last_lines(it: &Loop<'_>) -> (String, &'static str) {
    let mut kept = it.ends.iter().filter_map(|it| it.kept);
    if let Some(kept) = kept.find(|it| it.has_log) {
        let show = format!("crisweep evidence show {}", kept.number);
        return (show, "has its last lines");
    }
    let (which, does) = if it.has_dead {
        ("--previous", "has its last lines")
    } else {
        ("--follow", "shows its next end")
    };
    let (namespace, pod, name) = (&it.pod.namespace, &it.pod.name, it.name);
    let show = if [namespace, pod, name].into_iter().all(|it| is_plain(it)) {
        format!("kubectl -n {namespace} logs {pod} -c {name} {which}")
    } else {
        format!("kubectl logs {which}")
    };
    (show, does)
}

/// Returns the command that shows the runtime's message, which is kept also of a container without a log.
fn message(it: &Loop<'_>) -> String {
    match it.ends.iter().find_map(|it| it.kept) {
        Some(kept) => format!("crisweep evidence show {}", kept.number),
        None => last_lines(it).0,
    }
}

fn change(it: &Loop<'_>, owner: &Controller) -> String {
    let template = match owner.kind.as_str() {
        "CronJob" => "spec.jobTemplate.spec.template.spec",
        _ if owner.is_pod_itself() => "spec",
        _ => "spec.template.spec",
    };
    let article = if owner.is_pod_itself() { "the " } else { "" };
    let owner = format!("{article}{}", who(it, owner));
    let container = format!("{template}.containers[name={}]", it.name);
    let (show, does) = last_lines(it);
    let Some(end) = it.last() else {
        return format!("read why it ends: {show}");
    };
    match (end.exit_code, end.reason.as_str()) {
        (_, "OOMKilled") => {
            format!("raise {container}.resources.limits.memory in {owner}, or have it use less")
        }
        // The runtime does not say which containers are init containers.
        (0, _) => format!(
            "its process ends by itself: keep it in the foreground, or run it as a Job ({show} {does}); an \
             init container must end: find what starts its pod anew"
        ),
        (126..=128, _) => format!(
            "correct {container}.command in {owner}: {} has the runtime's message",
            message(it)
        ),
        (137 | 143, _) => format!(
            "correct {container}.livenessProbe in {owner}, if the pod's events name it as the one that kills: kubectl \
             describe pod; else {show}"
        ),
        _ => format!("fix its failure: {show} {does}"),
    }
}
