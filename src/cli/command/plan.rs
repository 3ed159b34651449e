//! `crisweep plan`: what a pass would remove. The running service plans; without one this command does.

use std::time::Duration;

use anyhow::Context;

use super::args::{PassArgs, PlanArgs};
use super::shown::ShownPlan;
use super::text::{self, plan_ink, plan_text};
use super::{looked, service};
use crate::cli::Output;
use crate::cli::output::{note, print, print_json, print_on};
use crate::cli::screen::Screen;
use crate::cli::service::{NOT_UNDERSTOOD, ServiceQuery, Site};
use crate::gc;
use crate::model::escape;

/// How long the service may take: a look at a sick node takes up to 8 s, and then it plans.
const PATIENCE: Duration = Duration::from_secs(40);
/// The largest plan: 40,000 objects are 12 MiB.
const PLAN_MAX_BYTES: usize = 128 << 20;

/// Runs `crisweep plan`.
///
/// # Errors
/// If the runtime is not found or does not answer.
pub async fn run(site: Site, args: PlanArgs) -> anyhow::Result<()> {
    if args.save {
        return save(&site, &args.pass).await;
    }
    let question = ServiceQuery::within(&site, PATIENCE).await;
    let question = question.up_to(PLAN_MAX_BYTES);
    let path = format!("/api/v1/plan?{}", service::query(&args.pass));
    let Some(plan) = question.bytes(path.trim_end_matches('?')).await? else {
        return own(&site, &args).await;
    };
    if args.pass.output == Output::Json {
        return print(&escape::json(&String::from_utf8_lossy(&plan)));
    }
    let shown: ShownPlan = serde_json::from_slice(&plan).context(NOT_UNDERSTOOD)?;
    show(&shown, &args)
}

/// Takes a look and plans on it.
async fn own(site: &Site, args: &PlanArgs) -> anyhow::Result<()> {
    let mut policy = site.config.policy.clone();
    args.pass.options().apply_to(&mut policy);
    let (runner, look) = looked(site).await?;
    let (snapshot, targets) = (runner.snapshot(&look)?, args.pass.targets());
    if let Some(wait) = gc::kept_for_quiet(&snapshot, &policy, &targets) {
        let seconds = wait.as_secs_f64();
        note(&format!(
            "more would go in {seconds:.0} s: finished pods must have been seen finished for pods.quiet; \
             crisweep gc waits for that"
        ));
    }
    let plan = runner.plan(&look, &policy, &targets)?;
    match args.pass.output {
        Output::Json => print_json(&plan),
        Output::Table => show(&ShownPlan::of(&plan)?, args),
    }
}

fn show(plan: &ShownPlan, args: &PlanArgs) -> anyhow::Result<()> {
    let screen = Screen::of_stdout(args.rows.wide);
    let text = plan_text(plan, args.rows.rows(), &screen);
    print_on(&screen, &text, plan_ink)
}

/// Has the service save its plan, and says how to have it carried out.
async fn save(site: &Site, args: &PassArgs) -> anyhow::Result<()> {
    let text = service::save(site, args).await?;
    let saved: service::ShownSavedPlan = serde_json::from_str(&text).context(NOT_UNDERSTOOD)?;
    let same = site.remote.as_ref();
    let same = same.map_or("", |_| ", with the same --service options");
    let apply = format!(
        "saved until {:.0} as {id}; what it lacks stays. To carry it out{same}:\n  crisweep gc --plan {id}",
        saved.expires_at,
        id = escape::line(&saved.id),
    );
    match args.output {
        Output::Json => {
            print(&escape::json(&text))?;
            note(&apply);
            Ok(())
        }
        Output::Table => {
            let screen = Screen::of_stdout(crate::cli::screen::Wide::default());
            let counts = text::counts(&saved.summary, &screen);
            print(&format!("{counts}\n{apply}"))
        }
    }
}
