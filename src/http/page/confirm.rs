//! What a real pass would do, to be confirmed before it begins.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::TICKED;
use super::plan::{removals, words};
use super::view::{MayAct, View};
use super::words::{count, text};
use crate::config::Mode;
use crate::gc::Plan;
use crate::model::Target;

pub(super) fn section(view: &View) -> Markup {
    let Some(plan) = &view.node.asked_plan else {
        return html! {};
    };
    html! {
        section #confirm .wide aria-labelledby="confirm-title" {
            @match plan {
                Err(why) => { h2 #confirm-title { "No pass can begin" } p.problem { (text(why)) } },
                Ok(plan) => {
                    @let removals = removals(plan);
                    @let all: u64 = removals.values().sum();
                    h2 #confirm-title { (question(view, all, &words(&removals))) }
                    (facts(view, plan))
                    @if view.asked.pass_targets().is_empty() { p.problem { "Nothing is ticked." } }
                    (form(view, &removals))
                },
            }
        }
    }
}

fn question(view: &View, all: u64, words: &str) -> String {
    let node = &view.config.node.name;
    match view.config.mode {
        Mode::Observe => format!("Plan a pass on {node}? (mode observe: it removes nothing)"),
        Mode::Enforce if all == 0 => format!("Run a pass on {node}? Nothing is to be removed now"),
        Mode::Enforce => format!("Remove {words} on {node}?"),
    }
}

fn facts(view: &View, plan: &Plan) -> Markup {
    html! {
        ul {
            li {
                "Mode " b { (view.config.mode.label()) } ": "
                @match view.config.mode {
                    Mode::Enforce => "what is removed cannot be brought back.",
                    Mode::Observe => "the pass only plans.",
                }
            }
            li {
                (count(plan.kept.len())) " objects stay. The pass looks again before each batch, and removes only what is "
                "still due then: the numbers may change a little."
            }
            @for doubt in &plan.doubts { li { strong { (text(doubt)) } "." } }
            @if view.config.evidence.enabled { li { "How each container ended and the end of its log are kept as evidence." } }
            @if let MayAct::Ask(what) = view.may { li { "Your browser will ask for " (what) "." } }
            @if let Some(why) = view.held() { li { strong { (text(why)) } ": only a forced pass runs." } }
        }
    }
}

/// One form, so that the pass is for what is ticked and for nothing else, counted again or not.
fn form(view: &View, removals: &BTreeMap<Target, u64>) -> Markup {
    let targets = view.asked.pass_targets();
    let label = match view.config.mode {
        Mode::Observe => "Plan what is ticked",
        Mode::Enforce => "Remove what is ticked",
    };
    let is_held = view.held().is_some();
    html! {
        form method="post" action="gc" {
            input type="hidden" name=(TICKED) value="true";
            fieldset {
                legend { "Only these:" }
                @for target in Target::ALL {
                    label {
                        input type="checkbox" name="target" value=(target) checked[targets.contains(&target)];
                        " " (target) " (" (count(removals.get(&target).copied().unwrap_or(0))) ")"
                    }
                }
                // The first button is the one that the Enter key presses.
                button formmethod="get" formaction="./#confirm" name="confirm" value="pass" data-again { "Count again" }
            }
            @if let MayAct::Not(why) = &view.may { p.problem { (text(why)) } } @else {
                div.buttons {
                    @if is_held {
                        button #confirmed .danger name="force" value="true" { (label) ", although passes are held" }
                    } @else {
                        button #confirmed .danger { (label) }
                    }
                    a.button href="./" data-close { "Cancel" }
                }
            }
        }
    }
}
