//! An explanation as text that fits one screen of a terminal with 24 lines of 100 columns.

use anyhow::Context;
use serde_json::Value;

use crate::cli::command::text::{clipped, titled, wrapped_at};
use crate::gc::explain::shown::{Shown, ShownRule};
use crate::model::{escape, short_duration};

/// Columns of the terminal.
const COLUMNS: usize = 100;
/// Where the text of each part begins.
const INDENT: usize = 9;
/// Where a rule's inputs begin.
const INPUTS: usize = 37;
/// The longest text of one part; names and errors from outside can be long.
const PART_MAX: usize = 450;
/// Holders shown; the JSON has more.
const HOLDERS: usize = 3;
/// Objects of a pod shown; the JSON has more.
const OBJECTS: usize = 15;

/// Formats an answer of `GET /api/v1/explain/ID`.
pub(super) fn of(answer: Value) -> anyhow::Result<String> {
    let shown: Shown = serde_json::from_value(answer).context("the answer is no explanation")?;
    Ok(if shown.kind == "pod" {
        pod(&shown)
    } else {
        object(&shown)
    })
}

fn object(shown: &Shown) -> String {
    let judged = &shown.judged;
    let mut text = format!("{}\n\n", escape::line(&judged.title));
    let reason = format!("{} ({}): {}", judged.said(), judged.reason, judged.detail);
    part(&mut text, "Verdict", &reason);
    if let Some(failed) = &shown.quarantine {
        let left = short_duration(failed.next_try.duration_since(shown.taken_at));
        let words = format!(
            "{} failures ({}), next try in {left}: {}",
            failed.failures, failed.class, failed.error
        );
        part(&mut text, "Failed", &words);
    }
    if let Some(since) = &shown.since {
        let ago = short_duration(shown.taken_at.duration_since(since.at));
        let at = since.at.strftime("%Y-%m-%d %H:%M:%S UTC");
        let words = format!("{at} ({ago} ago): {}", since.what);
        part(&mut text, "Since", &words);
    }
    holders(&mut text, shown);
    for (number, change) in shown.would_change.iter().enumerate() {
        if number == 0 {
            part(&mut text, "Change", &change.what);
        } else {
            part(&mut text, "", &format!("or {}", change.what));
        }
    }
    rules(&mut text, &shown.rules);
    text
}

/// Writes a part of the answer: its title, and its text from the same column on.
fn part(text: &mut String, title: &str, words: &str) {
    let words = clipped(&escape::line(words), PART_MAX);
    text.push_str(&titled(COLUMNS, title, &words, INDENT));
}

fn holders(text: &mut String, shown: &Shown) {
    let mut title = "Held by";
    let (held_by, more) = shown.holders(HOLDERS);
    for holder in held_by {
        let words = match &holder.reason {
            Some(reason) => {
                let said = holder.said().unwrap_or("stays");
                format!("{}, {said} ({reason}): {}", holder.name, holder.detail)
            }
            None => holder.detail.clone(),
        };
        part(text, title, &words);
        title = "";
    }
    if more > 0 {
        part(
            text,
            "",
            &format!("and {more} more (--output json lists them)"),
        );
    }
    // The chain of the first one ends here.
    if let Some(words) = held_by.first().and_then(|holder| holder.pod_words()) {
        part(text, "", words);
    }
}

fn rules(text: &mut String, rules: &[ShownRule]) {
    let mut title = "Rules";
    let asked = rules.iter().filter(|rule| rule.said != "not-reached");
    for rule in asked {
        let mark = if rule.decides { '*' } else { ' ' };
        let inputs = clipped(&escape::line(&rule.inputs), PART_MAX);
        let name = format!("{title:<INDENT$}{mark} {:<18}{}", rule.rule, rule.said);
        text.push_str(&titled(COLUMNS, &name, &inputs, INPUTS));
        title = "";
    }
    let rest = rules.iter().filter(|rule| rule.said == "not-reached");
    let rest: Vec<&str> = rest.map(|rule| rule.rule.as_str()).collect();
    if !rest.is_empty() {
        part(text, title, &format!("not reached: {}", rest.join(", ")));
    }
}

fn pod(shown: &Shown) -> String {
    let facts = shown.pod.as_ref().map_or("", |pod| &pod.words);
    let mut text = wrapped_at(COLUMNS, &escape::line(facts), 0);
    text.push('\n');
    let stays = shown.objects.iter().filter(|it| it.said() == "stays");
    let kept = stays.count();
    let total = shown.objects_total.max(shown.objects.len());
    text.push_str(&format!("{kept} of {total} objects stay\n"));
    for object in shown.objects.iter().take(OBJECTS) {
        // Its pod is the title.
        let title = object.title.split(" of pod ").next().unwrap_or_default();
        text.push_str(&format!(
            "  {:<5} {:<17} {}",
            object.said(),
            object.reason,
            clipped(&escape::line(title), PART_MAX)
        ));
        text.push('\n');
    }
    if total > OBJECTS {
        text.push_str(&format!(
            "  and {} more (--output json lists them)\n",
            total - OBJECTS
        ));
    }
    text
}
