//! Sandboxes that could not be removed, in words.

use maud::{Markup, html};

use super::super::quarantine::{QuarantinedSandbox, SHOWN_MAX};
use super::messages::innermost;
use super::view::View;
use super::words::{ahead, columns, count, cut, name, short_id, text};
use crate::model::FailureClass;

/// A longer message is shown behind its beginning.
const MESSAGE_CHARS: usize = 160;

pub(super) fn section(view: &View) -> Markup {
    let (classes, first) = &view.quarantine;
    let all: usize = classes.values().sum();
    html! {
        section #quarantine data-live aria-labelledby="quarantine-title" {
            h2 #quarantine-title { "Sandboxes that could not be removed" }
            @if all == 0 { p.muted { "None." } } @else {
                p {
                    (count(all)) " in quarantine until the next try: "
                    @for (place, (class, n)) in classes.iter().enumerate() {
                        @if place > 0 { ", " }
                        (words(*class)) " " (count(*n))
                    }
                    @if all > SHOWN_MAX {
                        ". The " (SHOWN_MAX) " that are tried next; "
                        a href="./?q=quarantined&show=stays&target=sandboxes#objects" { "all" }
                    }
                }
                table {
                    (columns(&["Sandbox", "What fails", "Next try"]))
                    tbody { @for sandbox in first { (row(view, sandbox)) } }
                }
            }
        }
    }
}

fn row(view: &View, sandbox: &QuarantinedSandbox) -> Markup {
    let known = &sandbox.known;
    let message = innermost(&known.error);
    html! {
        tr {
            th scope="row" {
                a href=(view.asked.explanation(&sandbox.id)) {
                    @match &sandbox.pod {
                        Some(pod) => { (name(&pod.namespace)) "/" (name(&pod.name)) }
                        None => "without a pod",
                    }
                }
                " " code { (text(short_id(&sandbox.id))) }
            }
            td {
                b { (words(known.class)) } ": " (cut(message, MESSAGE_CHARS))
                @if message.len() < known.error.len() || message.chars().count() > MESSAGE_CHARS {
                    details { summary { "The runtime's whole text" } p.wrap { (text(&known.error)) } }
                }
            }
            td { (ahead(known.next_try, view.now)) ", failed " (known.failures) @if known.failures == 1 { " time" } @else { " times" } }
        }
    }
}

fn words(class: FailureClass) -> &'static str {
    match class {
        FailureClass::NetworkTeardown => "the network plugin fails",
        FailureClass::PluginMissing => "the network plugin is missing",
        FailureClass::Busy => "in use",
        FailureClass::Timeout => "no answer in time",
        FailureClass::Other => "the runtime fails",
    }
}
