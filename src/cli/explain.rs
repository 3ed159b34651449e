//! `crisweep explain`: why one object is kept or removed. Asks the running service; without one it looks for itself.

use std::time::Duration;

use anyhow::Context;
use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::Output;
use super::command::looked;
use super::command::text::{clipped, titled, wrapped_at};
use super::output::{print, print_json};
use super::screen::terminal_columns;
use super::service::{NOT_UNDERSTOOD, ServiceQuery, Site};
use crate::gc::explain::{
    ExplainAnswer, Explanation, ObjectAnswer, PodAnswer, RuleLine, RuleResult,
};
use crate::model::{escape, short_duration};

/// How long the service may take: a look at the node takes up to 8 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Columns of a line, where the terminal has no fewer.
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

/// Arguments of `explain`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = AFTER_HELP)]
pub struct ExplainArgs {
    /// An id, or its first 6 characters; or a name, such as namespace/pod
    ///
    /// The id of a container, sandbox or image, or a pod's UID; or namespace/pod, namespace/pod/container,
    /// namespace/pod/container#attempt, an image's tag, a log's path
    #[arg(value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub id: String,
    /// table for people, json for machines (as GET /api/v1/explain/ID)
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    pub output: Output,
}

const AFTER_HELP: &str = "\
The running service answers; without one this command looks at the node itself. Nothing is removed.

Exit codes:
  0  explained
  1  nothing has this id or name, or several have (the error names the first),
     or the node cannot be looked at
  2  wrong arguments, or the configuration is refused

Examples:
  crisweep explain 4f1b0c           what has an id that begins so
  crisweep explain shop/web         a pod: what of it stays, what goes, and why
  crisweep explain shop/web/app#3   one attempt of a container
  crisweep explain registry.example/shop/web:1.2
  crisweep explain shop/web/app#3 --output json | jq .would_change
";

/// Runs `crisweep explain`.
///
/// # Errors
/// If nothing or too much has this id, or the node cannot be looked at.
pub async fn run(site: Site, args: ExplainArgs) -> anyhow::Result<()> {
    let path = format!("/api/v1/explain/{}", escape::url(&args.id));
    let question = ServiceQuery::within(&site, PATIENCE).await;
    let value = match question.ask(&path).await? {
        Some(value) => value,
        None => own(&site, &args.id).await?,
    };
    match args.output {
        Output::Json => print_json(&value),
        Output::Table => print(&text(value)?),
    }
}

/// Takes a look and explains from it.
async fn own(site: &Site, id: &str) -> anyhow::Result<Value> {
    let (runner, look) = looked(site).await?;
    let answer = runner.explain(&look, &site.config.policy, id)??;
    Ok(serde_json::to_value(answer)?)
}

/// Formats an answer of `GET /api/v1/explain/ID`.
fn text(answer: Value) -> anyhow::Result<String> {
    let answer = serde_json::from_value(answer).context(NOT_UNDERSTOOD)?;
    let columns = terminal_columns(std::io::stdout()).map_or(COLUMNS, |it| it.min(COLUMNS));
    Ok(match answer {
        ExplainAnswer::Pod(answer) => pod(&answer, columns),
        ExplainAnswer::Object(answer) => object(&answer, columns),
    })
}

fn object(answer: &ObjectAnswer, columns: usize) -> String {
    let (judged, why) = (&answer.judged, &answer.why);
    let mut page = TextPage {
        text: format!("{}\n\n", escape::line(&judged.title)),
        columns,
    };
    let reason = format!("{} ({}): {}", judged.fate(), judged.reason, judged.detail);
    page.part("Verdict", &reason);
    if let Some(failed) = &judged.quarantine {
        let left = short_duration(failed.next_try.duration_since(answer.taken_at));
        let words = format!(
            "{} ({}), next try in {left}: {}",
            if failed.failures == 1 {
                "once".to_owned()
            } else {
                format!("{} times", failed.failures)
            },
            failed.class.label(),
            failed.error
        );
        page.part("Failed", &words);
    }
    if let Some(since) = &why.since {
        let ago = short_duration(answer.taken_at.duration_since(since.at));
        let at = since.at.strftime("%Y-%m-%d %H:%M:%S UTC");
        let words = format!("{at} ({ago} ago): {}", since.what);
        page.part("Since", &words);
    }
    page.holders(why);
    for (number, change) in why.would_change.iter().enumerate() {
        if number == 0 {
            page.part("Change", &change.what);
        } else {
            page.part("", &format!("or {}", change.what));
        }
    }
    page.rules(&why.rules);
    page.text
}

/// An answer as it is written.
struct TextPage {
    text: String,
    columns: usize,
}

impl TextPage {
    /// Writes a part of the answer: its title, and its text from the same column on.
    fn part(&mut self, title: &str, words: &str) {
        let words = clipped(&escape::line(words), PART_MAX);
        self.text
            .push_str(&titled(self.columns, title, &words, INDENT));
    }

    fn holders(&mut self, why: &Explanation) {
        let mut title = "Held by";
        let (held_by, more) = why.holders(HOLDERS);
        for holder in held_by {
            let words = match &holder.reason {
                Some(reason) => {
                    let said = holder.fate().unwrap_or("stays");
                    format!("{}, {said} ({reason}): {}", holder.name, holder.detail)
                }
                None => holder.detail.clone(),
            };
            self.part(title, &words);
            title = "";
        }
        if more > 0 {
            self.part("", &format!("and {more} more (--output json lists them)"));
        }
        // The chain of the first one ends here.
        if let Some(words) = held_by.first().and_then(|holder| holder.pod_words()) {
            self.part("", words);
        }
    }

    fn rules(&mut self, rules: &[RuleLine]) {
        let mut title = "Rules";
        let asked = rules
            .iter()
            .filter(|rule| rule.said != RuleResult::NotReached);
        for rule in asked {
            let (mark, inputs) = if rule.decides {
                ('*', "see Verdict")
            } else {
                (' ', &*rule.inputs)
            };
            let inputs = clipped(&escape::line(inputs), PART_MAX);
            let name = format!(
                "{title:<INDENT$}{mark} {:<18}{}",
                rule.rule,
                rule.said.label()
            );
            self.text
                .push_str(&titled(self.columns, &name, &inputs, INPUTS));
            title = "";
        }
        let rest = rules
            .iter()
            .filter(|rule| rule.said == RuleResult::NotReached);
        let rest: Vec<&str> = rest.map(|rule| &*rule.rule).collect();
        if !rest.is_empty() {
            self.part(title, &format!("not reached: {}", rest.join(", ")));
        }
    }
}

fn pod(shown: &PodAnswer, columns: usize) -> String {
    let mut text = wrapped_at(columns, &escape::line(&shown.pod.words), 0);
    text.push('\n');
    let stays = shown.objects.iter().filter(|it| it.fate() == "stays");
    let kept = stays.count();
    let total = shown.objects_total.max(shown.objects.len());
    text.push_str(&format!("{kept} of {total} objects stay\n"));
    for object in shown.objects.iter().take(OBJECTS) {
        // The title of the page names the pod.
        let title = object.title.split(" of pod ").next().unwrap_or_default();
        text.push_str(&format!(
            "  {:<5} {:<17} {}",
            object.fate(),
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
