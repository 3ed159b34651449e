//! What a real pass would do, to be confirmed before it begins.

use maud::{Markup, html};

use super::plan::{removals, words};
use super::view::{May, View};
use super::words::{count, text};
use crate::config::Mode;
use crate::model::{Target, Targets};

pub(super) fn section(view: &View) -> Markup {
    let Some(plan) = &view.node.asked_plan else {
        return html! {};
    };
    let targets = view.asked.pass_targets();
    html! {
        section #confirm .wide aria-labelledby="confirm-title" {
            @match plan {
                Err(why) => { h2 #confirm-title { "No pass can begin" } p.problem { (text(why)) } },
                Ok(plan) => {
                    @let removals = removals(plan);
                    @let all: u64 = removals.values().sum();
                    h2 #confirm-title { (question(view, all, &words(&removals))) }
                    (facts(view, plan.kept.len()))
                    form method="get" action="/#confirm" data-dialog {
                        input type="hidden" name="confirm" value="pass";
                        fieldset {
                            legend { "Only these:" }
                            @for target in Target::ALL {
                                label {
                                    input type="checkbox" name="target" value=(target) checked[targets.contains(&target)];
                                    " " (target) " (" (count(removals.get(&target).copied().unwrap_or(0))) ")"
                                }
                            }
                            button { "Count again" }
                        }
                    }
                    (begin(view, all))
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

fn facts(view: &View, stays: usize) -> Markup {
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
                (count(stays)) " objects stay. The pass looks again before each batch, and removes only what is "
                "still due then: the numbers may change a little."
            }
            @if view.config.evidence.enabled { li { "How each container ended and the end of its log are kept as evidence." } }
            @if let May::Ask(what) = view.may { li { "Your browser will ask for " (what) "." } }
            @if let Some(why) = view.held() { li { strong { (text(why)) } ": only a forced pass runs." } }
        }
    }
}

fn begin(view: &View, all: u64) -> Markup {
    let targets = view.asked.pass_targets();
    let query = if targets == Targets::all().0 {
        "target=all".to_owned()
    } else {
        let words: Vec<String> = targets.iter().map(|it| format!("target={it}")).collect();
        words.join("&")
    };
    let label = match view.config.mode {
        Mode::Observe => "Plan".to_owned(),
        Mode::Enforce if all == 0 => "Run the pass".to_owned(),
        Mode::Enforce if all == 1 => "Remove 1 object".to_owned(),
        Mode::Enforce => format!("Remove {} objects", count(all)),
    };
    let is_held = view.held().is_some();
    html! {
        @if let May::Not(why) = &view.may { p.problem { (text(why)) } } @else {
            div.buttons {
                @if is_held {
                    form method="post" action=(format!("/gc?force=true&{query}")) {
                        button #confirmed .danger { (label) ", although passes are held" }
                    }
                } @else {
                    form method="post" action=(format!("/gc?{query}")) {
                        button #confirmed .danger { (label) }
                    }
                }
                a.button href="/" data-close { "Cancel" }
            }
        }
    }
}
