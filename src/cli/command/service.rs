//! `crisweep gc` while the service runs: asks it over its unix socket, where root needs no credential.

use std::path::Path;

use anyhow::Context;
use reqwest::header::LOCATION;
use reqwest::{Client, Response, StatusCode, Url};

use crate::cli::{GcArgs, Output};
use crate::model::{Pass, escape};

/// The host name is not looked up; the service knows it as its own.
const SERVICE: &str = "http://localhost";

/// Asks for a pass, shows its progress and returns it when it is done; Ctrl-C cancels it.
///
/// # Errors
/// If the service does not answer, or refuses the pass.
pub(super) async fn gc(socket: &Path, args: &GcArgs) -> anyhow::Result<Pass> {
    // Fails only if a provider is already installed, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
    let none = rustls::ClientConfig::builder()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let client = Client::builder()
        .unix_socket(socket)
        .tls_backend_preconfigured(none)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()?;
    let at = || format!("the service at {}", socket.display());
    let response = client.post(url(args)?).send().await.with_context(at)?;
    let response = accepted(response).await.with_context(at)?;
    let location = response.headers().get(LOCATION);
    let location = location.and_then(|it| it.to_str().ok());
    let path = location.context("the service names no pass")?;
    let pass = Url::parse(SERVICE)?.join(path)?;
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

fn url(args: &GcArgs) -> anyhow::Result<Url> {
    let mut url = Url::parse(SERVICE)?.join("/gc")?;
    let mut query = url.query_pairs_mut();
    query.append_pair("follow", "true");
    for target in args.pass.targets() {
        query.append_pair("target", target.label());
    }
    let options = args.pass.options();
    if let Some(age) = options.assume_finished_after {
        let age = humantime::format_duration(age).to_string();
        query.append_pair("assume_finished_after", &age);
    }
    let numbers = [
        ("max_removals", args.max_removals.map(|it| it.to_string())),
        ("max_dead", args.pass.max_dead.map(|it| it.to_string())),
        ("dry_run", args.dry_run.then(|| "true".to_owned())),
    ];
    for (key, value) in numbers {
        if let Some(value) = value {
            query.append_pair(key, &value);
        }
    }
    drop(query);
    Ok(url)
}

/// Returns the answer, or the service's own words if it refuses.
async fn accepted(response: Response) -> anyhow::Result<Response> {
    let status = response.status();
    if status == StatusCode::OK || status == StatusCode::ACCEPTED {
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
