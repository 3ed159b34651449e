//! The node in figures: counts, list sizes, the image file system, pods and brakes, with limits and history.

use maud::{Markup, html};
use tokio::time::Instant;

use super::super::status::PodsJudgement;
use super::drawing::{bar, sparkline};
use super::history::TimeSeries;
use super::view::View;
use super::words::{ago, count, span, text};
use crate::gc::knowledge::SourceState;
use crate::model::{Brake, ContainerState, Coverage, PodSandboxState, short_size};
use crate::snapshot::{Look, TrendSample, Weight};

/// The page shows no longer time to a limit: no history is that steady.
const HOURS_MAX: f64 = 72.0;

pub(super) fn section(view: &View) -> Markup {
    html! {
        section #node data-live aria-labelledby="node-title" {
            h2 #node-title { "The node" }
            @match &view.node.look {
                None => p { "No look at the node has been taken yet." },
                Some(look) => (table(view, look)),
            }
        }
    }
}

fn table(view: &View, look: &Look) -> Markup {
    let reach = TimeSeries::of(&view.trend, |_| Some(0.0)).reach(Instant::now());
    let reach = reach.map(|it| span(it.as_secs().try_into().unwrap_or(i64::MAX)));
    html! {
        table.figures {
            thead { tr {
                th scope="col" { "What" }
                th scope="col" { "Now" }
                th scope="col" { "Last " (reach.unwrap_or_else(|| "minutes".to_owned())) }
            } }
            tbody {
                (containers(view, look))
                (sandboxes(view, look))
                (lists(view, look))
                (image_filesystem(view, look))
                (pods(view, look))
                (brakes(view))
            }
        }
        (errors(view, look))
    }
}

fn row(name: &str, now: &Markup, trend: &Markup) -> Markup {
    html! { tr { th scope="row" { (name) } td { (now) } td.trend { (trend) } } }
}

/// A row of a figure without a history: its value takes the column of the trend too.
fn row_without_trend(name: &str, now: &Markup) -> Markup {
    html! { tr { th scope="row" { (name) } td colspan="2" { (now) } } }
}

fn trend(
    view: &View,
    what: &str,
    figure: impl Fn(&TrendSample) -> Option<f64>,
    words: impl Fn(f64) -> String,
) -> Markup {
    let series = TimeSeries::of(&view.trend, figure);
    let now = Instant::now();
    let (Some((least, most)), Some(reach)) = (series.bounds(), series.reach(now)) else {
        return html! { span.muted { "no history yet" } };
    };
    let reach = span(reach.as_secs().try_into().unwrap_or(i64::MAX));
    let label = format!(
        "{what} over {reach}: from {} to {}",
        words(least),
        words(most)
    );
    sparkline(&series.ages(now), &label)
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn containers(view: &View, look: &Look) -> Markup {
    let name = "Containers";
    let Ok(list) = &look.containers else {
        return row_without_trend(name, &unread());
    };
    let of = |state| list.rows.iter().filter(|row| row.state == state).count();
    let [running, exited, created, unknown] = [
        ContainerState::Running,
        ContainerState::Exited,
        ContainerState::Created,
        ContainerState::Unknown,
    ]
    .map(of);
    let now = html! {
        b { (count(exited)) " exited" } ", " (count(running)) " running"
        @if created > 0 { ", " (count(created)) " created" }
        @if unknown > 0 { ", " (count(unknown)) " unknown" }
        (incomplete(list.coverage))
    };
    let figure = |it: &TrendSample| it.exited_containers.map(f64::from);
    row(name, &now, &trend(view, "Exited containers", figure, whole))
}

fn sandboxes(view: &View, look: &Look) -> Markup {
    let name = "Sandboxes";
    let Ok(list) = &look.sandboxes else {
        return row_without_trend(name, &unread());
    };
    let ready = |state| list.rows.iter().filter(|row| row.state == state).count();
    let now = html! {
        b { (count(ready(PodSandboxState::NotReady))) " not ready" } ", "
        (count(ready(PodSandboxState::Ready))) " ready"
        (incomplete(list.coverage))
    };
    let figure = |it: &TrendSample| it.not_ready_sandboxes.map(f64::from);
    row(
        name,
        &now,
        &trend(view, "Sandboxes that are not ready", figure, whole),
    )
}

fn unread() -> Markup {
    html! { "could not be read" }
}

fn incomplete(coverage: Coverage) -> Markup {
    html! { @if coverage != Coverage::Whole { " " span.muted { "(at least: the list is not complete)" } } }
}

fn lists(view: &View, look: &Look) -> Markup {
    let weights = look.weights();
    let kib = |it: Option<u32>| it.map(|kib| 1024.0 * f64::from(kib));
    let containers = TimeSeries::of(&view.trend, |it| kib(it.containers_list_kib));
    let sandboxes = TimeSeries::of(&view.trend, |it| kib(it.sandboxes_list_kib));
    let size = |bytes: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the size of a message"
        )]
        short_size(bytes as u64)
    };
    let drawn = |what, figure: fn(&TrendSample) -> Option<u32>| {
        trend(view, what, |it| kib(figure(it)), size)
    };
    html! {
        (row("List of containers", &list(view, weights.containers, Some(&containers)),
            &drawn("Size of the list of containers", |it| it.containers_list_kib)))
        (row("List of sandboxes", &list(view, weights.sandboxes, Some(&sandboxes)),
            &drawn("Size of the list of sandboxes", |it| it.sandboxes_list_kib)))
        (row("List of images", &list(view, weights.images, None), &html! {}))
    }
}

/// A list over its limit blinds the kubelet, so its distance matters.
#[expect(clippy::cast_precision_loss, reason = "hours, roughly")]
fn list(view: &View, weight: Weight, series: Option<&TimeSeries>) -> Markup {
    let (Some(bytes), Some(ratio)) = (weight.bytes, weight.ratio()) else {
        return unread();
    };
    let mark = view.config.thresholds.list_limit_ratio;
    let hours = series.and_then(|it| it.hours_to(weight.limit_bytes as f64));
    html! {
        (bar(ratio, mark.as_slice(), mark))
        b { (format!("{:.0}%", (100.0 * ratio).floor())) } ": "
        (short_size(bytes)) " of " (short_size(weight.limit_bytes))
        @if ratio > 1.0 {
            ", " strong { "over it" }
        } @else if let Some(hours) = hours.filter(|hours| *hours <= HOURS_MAX) {
            ", " strong { "full in " (hours_words(hours)) } " if it goes on so"
        }
    }
}

fn hours_words(hours: f64) -> String {
    if hours < 1.0 {
        "less than 1 h".to_owned()
    } else {
        format!("{hours:.0} h")
    }
}

fn image_filesystem(view: &View, look: &Look) -> Markup {
    let name = "Image file system";
    let filesystems = look.filesystems.as_ref().ok();
    let Some(usage) = filesystems.and_then(|it| it.image.first()?.usage) else {
        return row_without_trend(name, &unread());
    };
    let policy = &view.config.policy.images;
    let share = |percent: u8| f64::from(percent) / 100.0;
    let marks = [policy.low_threshold_percent, policy.high_threshold_percent].map(share);
    let ratio = usage.used_ratio();
    let now = html! {
        (bar(ratio, &marks, Some(marks[1])))
        b { (format!("{:.0}%", (100.0 * ratio).floor())) } " used of " (short_size(usage.capacity_bytes))
        ", " (short_size(usage.available_bytes)) " left. "
        span.muted {
            "Above " (policy.high_threshold_percent) "% unused images go, down to " (policy.low_threshold_percent) "%."
        }
        @if let Some(share) = look.figures().image_fs_inodes_used_ratio() {
            br; (bar(share, &marks, Some(marks[1])))
            b { (format!("{:.0}%", (100.0 * share).floor())) } " of its inodes used, "
            (count(usage.inodes_free)) " left"
        }
    };
    let figure = |it: &TrendSample| it.image_fs_used_percent.map(f64::from);
    let words = |percent: f64| format!("{percent:.0}%");
    row(
        name,
        &now,
        &trend(view, "Use of the image file system", figure, words),
    )
}

fn pods(view: &View, look: &Look) -> Markup {
    let PodsJudgement { state, why } = &view.node.pods;
    let source = look.pod_origin.source.words();
    let known = match state {
        SourceState::Known => "known",
        SourceState::None => "not known",
        SourceState::Settling => "not believed yet",
        SourceState::Failed => "not known: the source fails",
        SourceState::Incomplete => "not believed: the list is incomplete",
    };
    let now = html! {
        b { (known) }
        @if *state != SourceState::None { ", from " (source) ", read " (ago(look.taken_at, view.now)) }
        @if look.pods.is_cached() { " (from its watch cache; a pass asks anew)" }
        @if let Some(why) = why { ". " span.muted { (text(why)) } }
    };
    row_without_trend("Pods", &now)
}

fn brakes(view: &View) -> Markup {
    let words = view.holding.iter().map(|brake| match brake {
        Brake::Pause => "paused (brakes.pause)".to_owned(),
        Brake::FleetHold => view.standing.held.clone().unwrap_or_default(),
        Brake::FleetUnknown => view.standing.unknown.clone().unwrap_or_default(),
        Brake::FleetStorm => view.standing.storm.clone().unwrap_or_default(),
        Brake::FleetBudget => "waits for a slot among all nodes (fleet.budget)".to_owned(),
        Brake::CoolDown => "cool-down after the last pass".to_owned(),
        Brake::PassesPerHour => "the hourly limit of passes is reached".to_owned(),
    });
    let words: Vec<String> = words.collect();
    let now = html! {
        @if words.is_empty() { b { "none" } " holds passes" } @else {
            b { (text(&words.join("; "))) }
            @if view.held().is_none() { span.muted { ". Holds automatic passes; yours may run." } }
        }
    };
    row_without_trend("Brakes", &now)
}

/// What could not be read, unless the plan says it.
fn errors(view: &View, look: &Look) -> Markup {
    let told = match &view.node.plan {
        Ok(plan) => plan.doubts.join("\n"),
        Err(why) => why.clone(),
    };
    let errors = look.errors().map(|(part, error)| (part, error.to_string()));
    html! {
        @for (part, error) in errors.filter(|(_, error)| !told.contains(error)) {
            p.problem { (part) ": " (text(&error)) }
        }
    }
}
