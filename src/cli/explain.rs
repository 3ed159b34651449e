//! `crisweep explain`: why one object is kept or removed. Asks the running service; without one it looks for itself.

mod text;

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use serde_json::Value;

use super::Output;
use super::command::looked;
use super::output::{print, print_json};
use super::service::{ServiceQuery, Site};
use crate::gc;
use crate::gc::explain::{Explainer, PlanFacts};
use crate::model::{Targets, escape};

/// How long the service may take: a look at the node takes up to 8 s.
const PATIENCE: Duration = Duration::from_secs(20);

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
        Output::Table => print(&text::of(value)?),
    }
}

/// Takes a look and explains from it.
async fn own(site: &Site, id: &str) -> anyhow::Result<Value> {
    let config = &site.config;
    let (runner, look) = looked(site).await?;
    let snapshot = runner.snapshot(&look)?;
    let plan = gc::plan(&snapshot, &config.policy, &Targets::all().0);
    let facts = PlanFacts::of(&snapshot, &config.policy, &plan);
    let explainer = Explainer::of(&facts, &plan, look.pod_origin.source);
    let answer = explainer.answer(id, |id| runner.quarantined(id))?;
    Ok(serde_json::to_value(answer)?)
}
