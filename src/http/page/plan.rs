//! What a pass would do now, in counts with reasons, and the buttons that begin one.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::asked::{Asked, Show};
use super::view::{MayAct, View};
use super::words::{columns, count, objects, text};
use crate::config::Mode;
use crate::gc::explain::{keep_text, remove_text};
use crate::gc::notes::FROM_CACHE;
use crate::gc::{Plan, Summary};
use crate::model::{Target, short_size};

pub(super) fn section(view: &View) -> Markup {
    html! {
        section #plan aria-labelledby="plan-title" {
            @match &view.node.plan {
                Ok(plan) => div #plan-counts data-live { (counts(plan)) },
                Err(why) => div #plan-counts data-live {
                    h2 #plan-title { "What a pass would do is not known" }
                    p.problem { (text(why)) }
                },
            }
            (buttons(view))
            (super::objects::search(view))
        }
    }
}

fn counts(plan: &Plan) -> Markup {
    let (goes, stays) = (plan.removals.len(), plan.kept.len());
    html! {
        h2 #plan-title {
            "A pass now would remove " strong { (count(goes)) } " and keep " (count(stays))
        }
        table.plan {
            (columns(&["Of", "goes, because", "stays, because"]))
            tbody {
                @for (target, summary) in &plan.summary { (of_target(plan, *target, summary)) }
            }
        }
        @for doubt in &plan.doubts {
            p class=(if doubt == FROM_CACHE { "muted" } else { "problem" }) { (text(doubt)) "." }
        }
    }
}

fn of_target(plan: &Plan, target: Target, summary: &Summary) -> Markup {
    let goes = summary.remove.iter();
    let goes = goes.map(|(reason, n)| (reason.label(), remove_text(*reason), *n));
    let stays = summary.keep.iter();
    let stays = stays.map(|(reason, n)| (reason.label(), keep_text(*reason), *n));
    let bytes = freed(plan, target);
    html! {
        tr {
            th scope="row" { (target) }
            td { (reasons(target, Show::Goes, goes)) @if let Some(bytes) = bytes { " " (bytes) } }
            td { (reasons(target, Show::Stays, stays)) }
        }
    }
}

fn freed(plan: &Plan, target: Target) -> Option<Markup> {
    let sizes = plan
        .removals_of(target)
        .filter_map(|it| it.subject.size_bytes());
    let bytes = sizes.fold(0, u64::saturating_add);
    (bytes > 0).then(|| html! { span.muted { "(" (short_size(bytes)) " listed)" } })
}

/// The reasons, the most frequent first, each with a link to its objects.
fn reasons(
    target: Target,
    show: Show,
    reasons: impl Iterator<Item = (&'static str, &'static str, usize)>,
) -> Markup {
    let mut reasons: Vec<_> = reasons.collect();
    reasons.sort_by_key(|(_, _, n)| std::cmp::Reverse(*n));
    let all: usize = reasons.iter().map(|(_, _, n)| n).sum();
    let to = |reason: &str| {
        Asked::default().objects(|it| {
            (it.q, it.show) = (reason.to_owned(), show);
            it.targets = [target].into();
        })
    };
    html! {
        @if all == 0 { span.muted { "none" } } @else {
            b { (count(all)) } ": "
            @for (place, (reason, meaning, n)) in reasons.iter().enumerate() {
                @if place > 0 { ", " }
                a href=(to(reason)) title=(meaning) { (reason) " " (count(*n)) }
            }
        }
    }
}

/// Returns how many objects of each target a plan removes.
pub(super) fn removals(plan: &Plan) -> BTreeMap<Target, u64> {
    let sum = |summary: &Summary| summary.remove.values().map(|n| *n as u64).sum();
    let of = plan
        .summary
        .iter()
        .map(|(target, summary)| (*target, sum(summary)));
    of.collect()
}

/// Writes `12 containers, 3 sandboxes and 1 image`; `nothing` if there is none.
pub(super) fn words(removals: &BTreeMap<Target, u64>) -> String {
    let there = removals.iter().filter(|(_, n)| **n > 0);
    let mut words: Vec<String> = there.map(|(target, n)| objects(*target, *n)).collect();
    match (words.pop(), words.is_empty()) {
        (None, _) => "nothing".to_owned(),
        (Some(last), true) => last,
        (Some(last), false) => format!("{} and {last}", words.join(", ")),
    }
}

fn buttons(view: &View) -> Markup {
    html! {
        div #buttons data-live {
            @if let MayAct::Not(why) = &view.may { (elsewhere(view, why)) } @else {
                div.buttons {
                    form method="post" action="gc?dry_run=true" {
                        button #dry-run { "Dry run" }
                    }
                    a #remove .button.danger href="./?confirm=pass#confirm" data-dialog {
                        @if view.config.mode == Mode::Observe { "Run a pass (plans only)…" } @else { "Remove…" }
                    }
                }
                p.muted {
                    "A dry run plans and removes nothing. "
                    @if let MayAct::Ask(what) = view.may { "Your browser will ask for " (what) ". " }
                    @if let Some(why) = view.held() { "Only a forced pass removes: " strong { (text(why)) } ". " }
                }
            }
        }
    }
}

/// What to do where the buttons would not work.
fn elsewhere(view: &View, why: &str) -> Markup {
    let credential = if view.needs_credential {
        " --service.token-file FILE"
    } else {
        ""
    };
    html! {
        p #elsewhere {
            strong { "You may look, not act: " } (text(why)) ". On the node, as root"
            @if view.needs_credential { ", with the token of one who may act" }
            ":"
        }
        pre tabindex="0" aria-labelledby="elsewhere" {
            "crisweep gc --dry-run" (credential) "   # plans only\n"
            "crisweep gc" (credential) "             # removes"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removals_are_told_in_words() {
        let told = |pairs: &[(Target, u64)]| words(&pairs.iter().copied().collect());
        assert_eq!(told(&[]), "nothing");
        assert_eq!(told(&[(Target::Logs, 0)]), "nothing");
        assert_eq!(told(&[(Target::Images, 1)]), "1 image");
        let three = [
            (Target::Containers, 1_200),
            (Target::Sandboxes, 1),
            (Target::Logs, 2),
        ];
        assert_eq!(told(&three), "1,200 containers, 1 sandbox and 2 logs");
    }
}
