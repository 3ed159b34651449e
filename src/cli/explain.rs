//! `crisweep explain`: why one object is kept or removed. Asks the running service; without one it looks for itself.

mod text;

use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tokio::time::Instant;

use super::Output;
use super::answer::encoded;
use super::check::own_service::Question;
use super::command::{looked, print};
use crate::config::Config;
use crate::gc;
use crate::gc::explain::Explainer;
use crate::model::{Targets, escape};

/// How long the service may take: a look at the node takes up to 8 s.
const SERVICE_PATIENCE: Duration = Duration::from_secs(20);

/// Arguments of `explain`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER_HELP)]
pub struct ExplainArgs {
    /// The id of a container, sandbox or image, or a pod's UID (the first 6 characters are enough); or a name:
    /// namespace/pod, namespace/pod/container, namespace/pod/container#attempt, an image's tag, a log's path
    #[arg(value_name = "ID")]
    pub id: String,
    /// How to show the answer: table for people, json for machines (as GET /api/v1/explain/ID)
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table, hide_possible_values = true)]
    pub output: Output,
}

const AFTER_HELP: &str = "\
Exit codes:
  0  explained
  1  nothing has this id or name, or several have (the error names the first), or the node cannot be looked at
  2  wrong arguments, or the configuration is refused
The service answers where one runs at an address of web.listen (a unix socket first). Otherwise, or if it wants a
credential for reading, and with --runtime-endpoint, this command takes one look at the node itself. Standard error says which. Nothing is removed.

Examples:
  crisweep explain 4f1b0c                         a container, sandbox, image or pod, by the beginning of its id
  crisweep explain shop/web                       a pod: what of it stays, what goes, and why
  crisweep explain shop/web/app#3                 one attempt of a container
  crisweep explain registry.example/shop/web:1.2  an image
  crisweep explain web --output json | jq .would_change
";

/// Runs `crisweep explain`.
///
/// # Errors
/// If nothing or too much has this id, or the node cannot be looked at.
pub async fn run(config: Config, flag: Option<String>, args: ExplainArgs) -> anyhow::Result<bool> {
    let asked = match flag {
        None => asked(&config, &args.id).await?,
        Some(_) => Err("--runtime-endpoint names a runtime"),
    };
    let value = match asked {
        Ok(value) => value,
        Err(why) => {
            eprintln!("{why}: this command looks for itself");
            own(&config, flag, &args.id).await?
        }
    };
    match args.output {
        Output::Json => print(&escape::json(&serde_json::to_string_pretty(&value)?)),
        Output::Table => print(&text::of(value)?),
    }
    Ok(true)
}

/// Asks the service; the inner error says why it told nothing.
async fn asked(config: &Config, id: &str) -> anyhow::Result<Result<Value, &'static str>> {
    let by = Instant::now() + SERVICE_PATIENCE;
    let question = Question::new(config, SERVICE_PATIENCE, by).await;
    question
        .ask(&format!("/api/v1/explain/{}", encoded(id)))
        .await
}

/// Takes a look and explains from it.
async fn own(config: &Config, flag: Option<String>, id: &str) -> anyhow::Result<Value> {
    let (runner, look) = looked(config, flag).await?;
    let snapshot = look.snapshot(runner.next_attempts(look.taken_at))?;
    let mut plan = gc::plan(&snapshot, &config.policy, &Targets::all().0);
    plan.add_details(&snapshot, &config.policy);
    let explainer = Explainer::of(&snapshot, &config.policy, &plan, look.pod_origin.source);
    let answer = explainer.answer(id, |id| runner.quarantined(id))?;
    Ok(serde_json::to_value(answer)?)
}
