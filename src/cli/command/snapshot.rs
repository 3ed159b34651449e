//! `crisweep snapshot`: the node in a file, from the running service or by a look of its own. Changes nothing.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use reqwest::StatusCode;

use super::looked;
use crate::cli::database;
use crate::cli::output::{note, print_bytes};
use crate::cli::service::{ServiceQuery, Site};
use crate::config::Config;
use crate::model::escape;
use crate::snapshot_file::{self, FILE_MAX_BYTES, SnapshotFile};
use crate::state::SnapshotBefore;
use crate::system::file::{Existing, write_private};

/// How long the service may take: a look at a sick node, then the file.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Arguments of `snapshot`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = AFTER_HELP)]
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
The running service writes what it knows: how long pods have been gone, image ages, quarantine. Without one this \
command looks at the node itself. docs/simulate.md tells what is in the file; crisweep simulate reads it.

Exit codes:
  0  written
  1  not written: the file exists, or the node cannot be read
  2  the configuration is refused, or the arguments are wrong

Examples:
  crisweep snapshot node.json.zst
  crisweep snapshot --pass 20260131T090000Z-7 before.json.zst
                                           the node when that pass planned
  crisweep snapshot - | ssh admin crisweep simulate -
";

/// Runs `crisweep snapshot`.
///
/// # Errors
/// If the node cannot be read, or the file cannot be written.
pub async fn run(site: &Site, args: SnapshotArgs) -> anyhow::Result<()> {
    let is_stdout = args.file.as_os_str() == "-";
    if is_stdout && io::stdout().is_terminal() {
        anyhow::bail!("a snapshot cannot be written to a terminal: name a file");
    }
    let existing = if args.force {
        Existing::Replace
    } else {
        Existing::Keep
    };
    let named = |error: io::Error| {
        let file = args.file.display();
        if error.kind() == io::ErrorKind::AlreadyExists {
            return anyhow::anyhow!("cannot write {file}: it exists; --force replaces it");
        }
        anyhow::Error::new(error).context(format!("cannot write {file}"))
    };
    let asked = from_service(site, args.pass.as_deref()).await?;
    let (bytes, by) = match (asked, &args.pass) {
        (Some(answer), _) => answer,
        (None, Some(pass)) => (kept(&site.config, pass).await?, "the database".to_owned()),
        (None, None) => (own(site).await?, "a look of its own".to_owned()),
    };
    let file = snapshot_file::decode(&*bytes).with_context(|| format!("what came from {by}"))?;
    if is_stdout {
        print_bytes(&bytes)?;
    } else {
        write_private(&args.file, &bytes, existing).map_err(named)?;
    }
    note(&escape::line(&told(&args.file, &bytes, &by, &file)));
    Ok(())
}

fn told(path: &Path, bytes: &[u8], by: &str, file: &SnapshotFile) -> String {
    let snapshot = &file.snapshot;
    format!(
        "{}: {} bytes, by {by}: {} at {:.0}, {} containers, {} sandboxes",
        path.display(),
        bytes.len(),
        file.about.node,
        snapshot.taken_at,
        snapshot.containers.len(),
        snapshot.sandboxes.len(),
    )
}

/// Returns the running service's file, and who gave it. `None`: the command looks itself, and standard error says why.
async fn from_service(
    site: &Site,
    pass: Option<&str>,
) -> anyhow::Result<Option<(Vec<u8>, String)>> {
    let path = match pass {
        Some(pass) => format!("/api/v1/snapshot?pass={}", escape::url(pass)),
        None => "/api/v1/snapshot".to_owned(),
    };
    let max = usize::try_from(FILE_MAX_BYTES).unwrap_or(usize::MAX);
    let question = ServiceQuery::within(site, TIMEOUT).await.up_to(max);
    let question = question.or_else("looking without it");
    match question.answer(&path).await {
        Ok((found, StatusCode::OK, bytes)) => Ok(Some((bytes, found.at()))),
        // The service could not read the lists either, or has no such pass.
        Ok((found, status, bytes))
            if status.is_server_error() || (pass.is_some() && status == StatusCode::NOT_FOUND) =>
        {
            anyhow::bail!("{}", found.refusal(status, &bytes))
        }
        Ok((found, status, bytes)) => question.instead(found.refusal(status, &bytes)),
        Err(failure) => question.instead(failure.words),
    }
}

/// Reads the snapshot from before a pass from the database.
async fn kept(config: &Config, pass: &str) -> anyhow::Result<Vec<u8>> {
    let file = database::ask(config, SnapshotBefore(pass.to_owned())).await?;
    file.with_context(|| {
        format!(
            "no snapshot from before pass \"{}\" is kept",
            escape::line(pass)
        )
    })
}

async fn own(site: &Site) -> anyhow::Result<Vec<u8>> {
    let config = &site.config;
    let (runner, look) = looked(site).await?;
    let snapshot = runner.snapshot(&look)?;
    let file = snapshot_file::encode(&look.about(config), &config.policy, &snapshot);
    Ok(file?)
}
