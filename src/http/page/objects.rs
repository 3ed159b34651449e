//! The objects of the plan, grouped by pod, some at a time.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};

use super::asked::{Asked, Show};
use super::view::View;
use super::words::{count, name, short_id, span, text};
use crate::gc::explain::{kept_text, remove_text};
use crate::gc::{Plan, PodKnowledge, Subject};
use crate::model::{KeepReason, Target};

/// Words of a search that count.
const WORDS_MAX: usize = 8;
/// Objects of one page.
pub(super) const ROWS_MAX: usize = 100;

/// An object with its verdict.
struct ObjectRow<'a> {
    subject: &'a Subject,
    goes: bool,
    reason: &'static str,
    meaning: &'static str,
    detail: &'a str,
    /// What people ask about first: failures, what goes, what stays dead, what lives.
    rank: u8,
}

/// The key of a group: how soon it is shown, and its pod's namespace, name and UID; objects without a pod come last.
type GroupKey<'a> = (u8, bool, Option<(&'a str, &'a str, &'a str)>);

/// The form that finds objects. It is on the first screen, and works without JavaScript.
pub(super) fn search(view: &View) -> Markup {
    let asked = &view.asked;
    html! {
        form #search role="search" action="./#objects" method="get" {
            label for="q" { "Why does it stay?" }
            input #q type="search" name="q" value=(text(&asked.q)) maxlength="200"
                placeholder="pod, namespace, id or reason" autocomplete="off" spellcheck="false";
            @if asked.show != Show::All { input type="hidden" name="show" value=(asked.show.label()); }
            @for target in &asked.targets { input type="hidden" name="target" value=(target); }
            button { "Find" }
        }
    }
}

pub(super) fn section(view: &View) -> Markup {
    html! {
        section #objects data-live aria-labelledby="objects-title" {
            @match &view.node.plan {
                Ok(plan) => (found(&view.asked, plan)),
                Err(_) => { h2 #objects-title { "Objects" } p.muted { "Not known either." } },
            }
        }
    }
}

fn found(asked: &Asked, plan: &Plan) -> Markup {
    let rows = rows(asked, plan);
    let pages = rows.len().div_ceil(ROWS_MAX).max(1);
    let page = asked.page.min(pages);
    let shown = rows.chunks(ROWS_MAX).nth(page - 1).unwrap_or_default();
    html! {
        h2 #objects-title {
            @if asked.q.is_empty() { "Objects" } @else { "Objects that match “" (text(&asked.q)) "”" }
        }
        (filters(asked))
        p role="status" {
            @if plan.removals.is_empty() && plan.kept.is_empty() { "The node has none." }
            @else if rows.is_empty() { "Nothing matches. " a href="./#objects" { "Show all" } } @else {
                (count(rows.len())) " of " (count(plan.removals.len() + plan.kept.len()))
                @if pages > 1 { ", page " (page) " of " (count(pages)) }
            }
        }
        @if !shown.is_empty() { (table(asked, shown)) }
        (paging(asked, page, pages, rows.len()))
    }
}

fn filters(asked: &Asked) -> Markup {
    let link = |to: String, is_on: bool, words: &str| {
        html! { a href=(to) aria-current=[is_on.then_some("true")] { (words) } }
    };
    html! {
        nav.filters aria-label="Which objects" {
            span {
                @for show in Show::ALL {
                    (link(asked.objects(|it| it.show = show), asked.show == show, show.label())) " "
                }
            }
            span {
                (link(asked.objects(|it| it.targets.clear()), asked.targets.is_empty(), "all kinds")) " "
                @for target in Target::ALL {
                    @let is_on = asked.targets.contains(&target);
                    (link(asked.objects(|it| it.targets = [target].into()), is_on, target.label())) " "
                }
            }
        }
    }
}

fn paging(asked: &Asked, page: usize, pages: usize, rows: usize) -> Markup {
    let rest = rows.saturating_sub(page * ROWS_MAX);
    html! {
        @if pages > 1 {
            nav.paging aria-label="Pages of objects" {
                @if page > 1 { a href=(asked.objects(|it| it.page = page - 1)) rel="prev" { "Previous " (ROWS_MAX) } " " }
                @if rest > 0 {
                    a href=(asked.objects(|it| it.page = page + 1)) rel="next" {
                        (count(rest)) " more"
                    }
                }
            }
        }
    }
}

fn rows<'a>(asked: &Asked, plan: &'a Plan) -> Vec<ObjectRow<'a>> {
    let words = asked.q.split_whitespace().map(str::to_lowercase);
    let words: BTreeSet<String> = words.take(WORDS_MAX).collect();
    let goes = plan.removals.iter().map(|it| ObjectRow {
        subject: &it.subject,
        goes: true,
        reason: it.reason.label(),
        meaning: remove_text(it.reason),
        detail: &it.detail,
        rank: 1,
    });
    let stays = plan.kept.iter().map(|it| ObjectRow {
        subject: &it.subject,
        goes: false,
        reason: it.reason.label(),
        meaning: kept_text(&it.subject, it.reason),
        detail: &it.detail,
        rank: rank(it.reason),
    });
    let is_shown = |row: &ObjectRow<'_>| match asked.show {
        Show::All => true,
        Show::Goes => row.goes,
        Show::Stays => !row.goes,
    };
    let rows = goes.chain(stays).filter(is_shown);
    let rows = rows.filter(|row| asked.wants(row.subject.target));
    let mut rows: Vec<ObjectRow<'a>> = rows.filter(|row| row.has_all(&words)).collect();
    let mut first: BTreeMap<Option<(&str, &str, &str)>, u8> = BTreeMap::new();
    for row in &rows {
        let rank = first.entry(pod(row.subject)).or_insert(row.rank);
        *rank = row.rank.min(*rank);
    }
    rows.sort_by_cached_key(|row| {
        let pod = pod(row.subject);
        let rank = first.get(&pod).copied().unwrap_or(row.rank);
        let group: GroupKey<'_> = (rank, pod.is_none(), pod);
        (
            group,
            row.rank,
            row.subject.target,
            row.subject.name.as_str(),
            row.subject.attempt,
        )
    });
    rows
}

fn rank(reason: KeepReason) -> u8 {
    match reason {
        KeepReason::Quarantined => 0,
        KeepReason::Running
        | KeepReason::Ready
        | KeepReason::Starting
        | KeepReason::InUse
        | KeepReason::Pinned
        | KeepReason::SandboxImage
        | KeepReason::PodExists
        | KeepReason::TargetExists => 3,
        KeepReason::StateUnknown
        | KeepReason::HasContainers
        | KeepReason::Unmanaged
        | KeepReason::Protected
        | KeepReason::TooYoung
        | KeepReason::Newest
        | KeepReason::WithinLimits
        | KeepReason::UnknownUser
        | KeepReason::Keep
        | KeepReason::BelowThreshold
        | KeepReason::ForeignName
        | KeepReason::NotAsked
        | KeepReason::PodsUnknown
        | KeepReason::NotInPlan => 2,
    }
}

fn pod(subject: &Subject) -> Option<(&str, &str, &str)> {
    let pod = subject.pod.as_deref()?;
    Some((pod.namespace.as_str(), pod.name.as_str(), pod.uid.as_str()))
}

impl ObjectRow<'_> {
    /// Says whether each word is in the object's name, its pod's, its id, its target or its reason.
    fn has_all(&self, words: &BTreeSet<String>) -> bool {
        if words.is_empty() {
            return true;
        }
        let subject = self.subject;
        let (id, name, target) = (&subject.id, &subject.name, subject.target.label());
        let (namespace, pod, uid) = pod(subject).unwrap_or_default();
        // Search words have no space, so no word matches across two fields.
        let text = format!(
            "{id} {name} {} {target} {namespace}/{pod} {uid}",
            self.reason
        );
        let text = text.to_lowercase();
        words.iter().all(|word| text.contains(word))
    }
}

fn table(asked: &Asked, rows: &[ObjectRow<'_>]) -> Markup {
    let groups = rows.chunk_by(|a, b| pod(a.subject) == pod(b.subject));
    html! {
        table.objects {
            thead { tr {
                th scope="col" { "Object" }
                th scope="col" { "Verdict" }
                th scope="col" { "Why" }
                th.age scope="col" { "Age" }
            } }
            @for group in groups {
                tbody {
                    // Not across the last column: a phone hides that, and a cell across it would keep its width.
                    tr.pod { th colspan="3" scope="rowgroup" { (heading(asked, group)) } td.age {} }
                    @for row in group { (object(asked, row)) }
                }
            }
        }
    }
}

fn heading(asked: &Asked, group: &[ObjectRow<'_>]) -> Markup {
    let Some(first) = group.first() else {
        return html! {};
    };
    match pod(first.subject) {
        None => html! { "Without a pod" },
        Some((namespace, pod_name, uid)) => html! {
            a href=(asked.explanation(uid)) { (name(namespace)) "/" (name(pod_name)) }
            " " span.muted { (knowledge(first.subject.pod_state)) }
        },
    }
}

fn knowledge(state: PodKnowledge) -> &'static str {
    match state {
        PodKnowledge::Active => "pod exists",
        PodKnowledge::Terminated => "pod finished",
        PodKnowledge::Assumed => "pod counts as finished",
        PodKnowledge::Deleted => "pod deleted",
        PodKnowledge::Absent => "pod not listed, not for long enough",
        PodKnowledge::Unknown => "pod not known",
    }
}

fn object(asked: &Asked, row: &ObjectRow<'_>) -> Markup {
    let (subject, kind) = (row.subject, row.subject.target.noun());
    html! {
        tr {
            td {
                a href=(asked.explanation(&subject.id)) {
                    (kind)
                    @match subject.target {
                        Target::Containers => { " " (name(&subject.name)) "#" (subject.attempt) }
                        Target::Sandboxes => { "#" (subject.attempt) }
                        Target::Logs | Target::Images => { " " (name(&subject.name)) }
                    }
                }
                @if subject.target != Target::Logs {
                    " " code { (text(short_id(subject.id.trim_start_matches("sha256:")))) }
                }
            }
            td { @if row.goes { span.goes { "goes" } } @else { span.stays { "stays" } } }
            td { b title=(row.meaning) { (row.reason) } @if !row.detail.is_empty() { ": " (name(row.detail)) } }
            td.age { (span(subject.age_seconds)) }
        }
    }
}
