//! `crisweep snapshot`: the node in a file, from the running service or by a look of its own. Changes nothing.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use reqwest::StatusCode;

use super::looked;
use crate::cli::answer::encoded;
use crate::cli::local_service::{Way, ways};
use crate::config::Config;
use crate::model::escape;
use crate::snapshot_file::{self, FILE_MAX_BYTES, SnapshotFile};
use crate::state;
use crate::system::blocking::BlockingPool;
use crate::system::file::{Existing, write_private};

/// How long the service may take: a look at a sick node, then the file.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long reading the web configuration file may take.
const DISK_TIMEOUT: Duration = Duration::from_secs(2);
/// How the command names itself.
const USER_AGENT: &str = concat!("crisweep-snapshot/", env!("CARGO_PKG_VERSION"));

/// Arguments of `snapshot`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_help = AFTER_HELP)]
pub struct SnapshotArgs {
    /// Where to write it, such as node.json.zst; - is standard output
    pub file: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// The node as it was before this pass, which removed something; the last few are kept (`state.snapshots`)
    #[arg(long, value_name = "PASS")]
    pub pass: Option<String>,
}

const AFTER_HELP: &str = "\
Asks the running service, so that the file shows what the service knows (how long pods have been gone, image ages,
quarantine); without one, and with --runtime-endpoint, looks itself. Says which. docs/simulate.md tells what is in
the file; crisweep simulate reads it.

Exit codes:
  0  written
  1  not written: the file exists, or the node cannot be read
  2  the configuration is refused, or the arguments are wrong

Examples:
  crisweep snapshot node.json.zst
  crisweep snapshot --pass 20260131T090000Z-7 before.json.zst    what the node was when that pass planned
  crisweep snapshot - | ssh admin crisweep simulate -
";

/// Runs `crisweep snapshot`.
///
/// # Errors
/// If the node cannot be read, or the file cannot be written.
pub async fn run(config: Config, flag: Option<String>, args: SnapshotArgs) -> anyhow::Result<bool> {
    let is_stdout = args.file.as_os_str() == "-";
    if is_stdout && io::stdout().is_terminal() {
        anyhow::bail!("standard output is a terminal, and the file is no text: name a file");
    }
    let existing = if args.force {
        Existing::Replace
    } else {
        Existing::Keep
    };
    let named = || format!("cannot write {}", args.file.display());
    if !is_stdout {
        // Told before the node is asked, which may take long.
        existing.check(&args.file).with_context(named)?;
    }
    let asked = if flag.is_none() {
        from_service(&config, args.pass.as_deref()).await?
    } else {
        None
    };
    let (bytes, by) = match (asked, &args.pass) {
        (Some((bytes, way)), _) => (bytes, format!("the service at {way}")),
        (None, Some(pass)) => (kept(&config, pass).await?, "the database".to_owned()),
        (None, None) => (own(&config, flag).await?, "a look of its own".to_owned()),
    };
    let file = snapshot_file::decode(&*bytes).with_context(|| format!("what came from {by}"))?;
    if is_stdout {
        let mut out = io::stdout().lock();
        out.write_all(&bytes)?;
        out.flush()?;
    } else {
        write_private(&args.file, &bytes, existing).with_context(named)?;
    }
    eprintln!("{}", escape::line(&told(&args.file, &bytes, &by, &file)));
    Ok(true)
}

fn told(path: &Path, bytes: &[u8], by: &str, file: &SnapshotFile) -> String {
    let snapshot = &file.snapshot;
    format!(
        "{}: {} bytes, by {by}: {} at {}, {} containers, {} sandboxes",
        path.display(),
        bytes.len(),
        file.about.node,
        snapshot.taken_at,
        snapshot.containers.len(),
        snapshot.sandboxes.len(),
    )
}

/// Returns the running service's file, and where it was asked; `None` if none runs, or none that gives a file.
async fn from_service(
    config: &Config,
    pass: Option<&str>,
) -> anyhow::Result<Option<(Vec<u8>, String)>> {
    let path = match pass {
        Some(pass) => format!("/api/v1/snapshot?pass={}", encoded(pass)),
        None => "/api/v1/snapshot".to_owned(),
    };
    for way in ways(config, DISK_TIMEOUT).await {
        let why = match ask(&way, &path).await {
            Ok((StatusCode::OK, bytes)) => return Ok(Some((bytes, way.to_string()))),
            // The service could not read the lists either.
            Ok((status, bytes))
                if status.is_server_error()
                    || (pass.is_some() && status == StatusCode::NOT_FOUND) =>
            {
                let text = String::from_utf8_lossy(&bytes);
                anyhow::bail!("the service at {way} answers {status}: {}", text.trim());
            }
            Ok((status, _)) => format!("answers {status}"),
            Err(error) if error.is_connect() => continue,
            Err(error) => format!("gives no answer ({})", crate::telemetry::chain(&error)),
        };
        let text = format!("the service at {way} {why}; looking without it");
        eprintln!("{}", escape::line(&text));
    }
    Ok(None)
}

async fn ask(way: &Way, path: &str) -> reqwest::Result<(StatusCode, Vec<u8>)> {
    let client = way.client(USER_AGENT)?;
    let request = client.get(way.url(path)).timeout(TIMEOUT);
    let mut response = request.send().await?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        // A longer one is refused when it is read.
        if bytes.len() as u64 > FILE_MAX_BYTES {
            break;
        }
    }
    Ok((response.status(), bytes))
}

/// Reads the snapshot from before a pass from the database.
async fn kept(config: &Config, pass: &str) -> anyhow::Result<Vec<u8>> {
    let dir = config.state.dir.clone();
    let dir = dir.context("nothing is kept (state.dir: null)")?;
    let id = pass.to_owned();
    let read = move || state::read_snapshot(&dir, &id);
    let file = BlockingPool::new(1).run(DISK_TIMEOUT, read).await;
    let file = file.context("the disk of state.dir")??;
    file.with_context(|| {
        format!(
            "no snapshot from before a pass \"{}\" is kept",
            escape::line(pass)
        )
    })
}

async fn own(config: &Config, flag: Option<String>) -> anyhow::Result<Vec<u8>> {
    let (runner, look) = looked(config, flag).await?;
    let snapshot = look.snapshot(runner.next_attempts(look.taken_at))?;
    let file = snapshot_file::encode(&look.about(config), &config.policy, &snapshot);
    Ok(file?)
}
