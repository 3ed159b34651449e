//! Asks the running service: `crisweep gc` while it holds the lock, and saved plans, which live in it. Over a unix
//! socket or an address of this machine, where root needs no credential.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use reqwest::header::LOCATION;
use reqwest::{Client, Response, Url};
use serde::Deserialize;

use crate::cli::local_service::{Way, ways};
use crate::cli::{GcArgs, Output, PassArgs};
use crate::config::Config;
use crate::gc::Summary;
use crate::model::{Pass, Target, escape};

/// How the command names itself.
const USER_AGENT: &str = concat!("crisweep-gc/", env!("CARGO_PKG_VERSION"));
/// How long the service may take to answer its probe, and reading the web configuration file.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a plan may take.
const PLAN_TIMEOUT: Duration = Duration::from_secs(60);

/// What is read of a saved plan.
#[derive(Deserialize)]
pub(super) struct Saved {
    /// Its id.
    pub(super) id: String,
    /// When it can no longer be carried out.
    pub(super) expires_at: Timestamp,
    /// Counts of removals and kept objects.
    pub(super) summary: BTreeMap<Target, Summary>,
}

/// Finds the running service.
///
/// # Errors
/// If none answers.
pub(super) async fn running(config: &Config) -> anyhow::Result<Way> {
    for way in ways(config, PROBE_TIMEOUT).await {
        let client = way.client(USER_AGENT)?;
        let probe = client.get(way.url("/-/healthy")).timeout(PROBE_TIMEOUT);
        let Ok(answer) = probe.send().await else {
            continue;
        };
        let is_well = answer.status().is_success();
        if is_well
            && answer
                .text()
                .await
                .is_ok_and(|text| text.starts_with("crisweep"))
        {
            return Ok(way);
        }
    }
    anyhow::bail!(
        "no service answers at web.listen of this configuration; it keeps the saved plans"
    )
}

/// Has the service save a plan; returns its answer.
///
/// # Errors
/// If the service does not answer, or refuses.
pub(super) async fn save(way: &Way, args: &PassArgs) -> anyhow::Result<String> {
    let at = || format!("the service at {way}");
    let mut url = Url::parse(&way.url("/api/v1/plans"))?;
    add(&mut url, args);
    let request = way.client(USER_AGENT)?.post(url).timeout(PLAN_TIMEOUT);
    let response = request.send().await.with_context(at)?;
    let response = accepted(response).await.with_context(at)?;
    response.text().await.with_context(at)
}

/// Asks for a pass, shows its progress and returns it when it is done; Ctrl-C cancels it.
///
/// # Errors
/// If the service does not answer, or refuses the pass.
pub(super) async fn gc(way: &Way, args: &GcArgs) -> anyhow::Result<Pass> {
    let client: Client = way.client(USER_AGENT)?;
    let at = || format!("the service at {way}");
    let response = client.post(url(way, args)?).send().await.with_context(at)?;
    let response = accepted(response).await.with_context(at)?;
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|it| it.to_str().ok());
    let path = location.context("the service names no pass")?;
    let pass = Url::parse(&way.url("/"))?.join(path)?;
    let mut following = std::pin::pin!(follow(response, args.pass.output));
    tokio::select! {
        followed = following.as_mut() => followed.with_context(at)?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            eprintln!("stopping: no new removal starts, removals in flight may finish");
            client.delete(pass.clone()).send().await.with_context(at)?;
            following.await.with_context(at)?;
        }
    }
    let response = client.get(pass).send().await.with_context(at)?;
    let text = accepted(response).await.with_context(at)?.text().await?;
    serde_json::from_str(&text).context("the service's answer is not a pass")
}

fn url(way: &Way, args: &GcArgs) -> anyhow::Result<Url> {
    let mut url = Url::parse(&way.url("/gc"))?;
    add(&mut url, &args.pass);
    let mut query = url.query_pairs_mut();
    query.append_pair("follow", "true");
    let values = [
        ("max_removals", args.max_removals.map(|it| it.to_string())),
        ("dry_run", args.dry_run.then(|| "true".to_owned())),
        ("plan", args.plan.clone()),
    ];
    for (key, value) in values {
        if let Some(value) = value {
            query.append_pair(key, &value);
        }
    }
    drop(query);
    Ok(url)
}

/// Adds what plans and passes share. Where no target is named the service chooses: all, or those of the saved plan.
fn add(url: &mut Url, args: &PassArgs) {
    let mut query = url.query_pairs_mut();
    if args.names_targets() {
        for target in args.targets() {
            query.append_pair("target", target.label());
        }
    }
    let options = args.options();
    if let Some(age) = options.assume_finished_after {
        let age = humantime::format_duration(age).to_string();
        query.append_pair("assume_finished_after", &age);
    }
    if let Some(max_dead) = args.max_dead {
        query.append_pair("max_dead", &max_dead.to_string());
    }
}

/// Returns the answer, or the service's own words if it refuses.
async fn accepted(response: Response) -> anyhow::Result<Response> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let text = response.text().await.unwrap_or_default();
    anyhow::bail!("it answered {status}: {}", text.trim());
}

async fn follow(mut response: Response, output: Output) -> anyhow::Result<()> {
    while let Some(lines) = response.chunk().await? {
        if output == Output::Table {
            eprint!("{}", escape::lines(&String::from_utf8_lossy(&lines)));
        }
    }
    Ok(())
}
