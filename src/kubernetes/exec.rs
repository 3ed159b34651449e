//! Credential plugins: programs that a kubeconfig names under `exec`. Runs one at a time, bounded in time and output,
//! and never waits for it longer than its caller does. Never shows what a plugin prints, except the first line of its
//! errors.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::config::{Cluster, ExecAuthCluster, ExecConfig, ExecInteractiveMode};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Error, beside};
use crate::outgoing::{Secret, SecretSource};
use crate::system::blocking::BlockingPool;
use crate::system::clock;

/// Timeout of one run.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long one that was killed is waited for.
const REAP: Duration = Duration::from_secs(1);
/// The largest output.
const OUTPUT_MAX_BYTES: u64 = 256 << 10;
/// The most that is read of its standard error.
const ERRORS_MAX_BYTES: u64 = 4 << 10;
/// The most that an error quotes of it.
const ERROR_MAX_CHARS: usize = 200;
/// The shortest time between two runs.
const AGAIN_AFTER: Duration = Duration::from_secs(5);
/// A credential that ends so soon is not used any more.
const ENDS_SOON: SignedDuration = SignedDuration::from_secs(30);
/// Versions of the plugins' API.
const VERSIONS: [&str; 2] = [
    "client.authentication.k8s.io/v1",
    "client.authentication.k8s.io/v1beta1",
];

/// How to run a plugin.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PluginCommand {
    program: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    version: String,
    /// What the plugin is told, as JSON.
    info: String,
    hint: Option<String>,
}

/// What a plugin gave. Has no `Debug`.
pub(super) struct Credential {
    pub(super) token: Option<Secret>,
    /// The client certificate and its key, in PEM.
    pub(super) identity: Option<(SecretSource, SecretSource)>,
    ends: Option<Timestamp>,
}

/// Runs the plugin. Cloning shares.
#[derive(Clone)]
pub(super) struct Plugin {
    last: Arc<Mutex<Option<PluginRun>>>,
    /// Starts it and waits for the end of one that was killed: both can hang with the disk that holds the plugin.
    starts: BlockingPool,
}

impl Default for Plugin {
    fn default() -> Self {
        Self {
            last: Arc::default(),
            starts: BlockingPool::new(1),
        }
    }
}

/// The last run.
struct PluginRun {
    command: PluginCommand,
    ended: Instant,
    result: Result<Arc<Credential>, String>,
    /// The API server refused it.
    is_refused: bool,
}

impl PluginCommand {
    /// Reads the plugin of a kubeconfig file.
    pub(super) fn new(
        exec: &ExecConfig,
        cluster: &Cluster,
        ca: Option<&SecretSource>,
        file: &Path,
    ) -> Result<Self, String> {
        let program = exec.command.as_deref().filter(|it| !it.is_empty());
        let program = program.ok_or("exec has no command")?;
        let version = exec.api_version.clone().unwrap_or_default();
        if !VERSIONS.contains(&version.as_str()) {
            return Err(format!("exec.apiVersion must be {}", VERSIONS.join(" or ")));
        }
        if exec.interactive_mode == Some(ExecInteractiveMode::Always) {
            return Err("exec.interactiveMode is Always, but a service has no terminal".to_owned());
        }
        let env = exec.env.iter().flatten();
        let env = env.filter_map(|it| Some((it.get("name")?.clone(), it.get("value")?.clone())));
        let spec = if exec.provide_cluster_info {
            json!({ "interactive": false, "cluster": about(cluster, ca) })
        } else {
            json!({ "interactive": false })
        };
        let info = json!({ "apiVersion": version, "kind": "ExecCredential", "spec": spec });
        Ok(Self {
            // A bare name is looked up in PATH.
            program: if program.contains('/') {
                beside(file, program)
            } else {
                program.into()
            },
            args: exec.args.clone().unwrap_or_default(),
            env: env.collect(),
            info: info.to_string(),
            hint: exec.install_hint.clone().filter(|it| !it.is_empty()),
            version,
        })
    }
}

/// Returns what a plugin with `provideClusterInfo` is told. A CA in a file is not read for it.
fn about(cluster: &Cluster, ca: Option<&SecretSource>) -> ExecAuthCluster {
    let ca = match ca {
        Some(SecretSource::Inline(ca)) => Some(ca.bytes.clone()),
        Some(SecretSource::File(_)) | None => None,
    };
    let mut extensions = cluster.extensions.iter().flatten();
    let config = extensions.find(|it| it.name == "client.authentication.k8s.io/exec");
    ExecAuthCluster {
        server: cluster.server.clone(),
        certificate_authority_data: ca,
        tls_server_name: cluster.tls_server_name.clone(),
        config: config.map(|it| it.extension.clone()),
        ..ExecAuthCluster::default()
    }
}

impl Plugin {
    /// Returns the last credential while it is good, else runs the plugin.
    pub(super) async fn credential(
        &self,
        command: &PluginCommand,
    ) -> Result<Arc<Credential>, Error> {
        let (last, asked) = (Arc::clone(&self.last), command.clone());
        let starts = self.starts.clone();
        // A task of its own: a caller that gives up must not end the run, else a slow plugin would never end.
        let running = tokio::spawn(async move {
            let mut last = last.lock().await;
            if let Some(last) = last.as_ref().filter(|last| last.serves(&asked)) {
                return last.result.clone();
            }
            let result = asked.run(&starts).await.map(Arc::new);
            let before = last.as_ref().and_then(|last| last.result.as_ref().err());
            if let Err(problem) = &result
                && before != Some(problem)
            {
                let command = asked.program.display();
                tracing::warn!(%command, problem, "the credential plugin failed");
            }
            *last = Some(PluginRun {
                command: asked,
                ended: Instant::now(),
                result: result.clone(),
                is_refused: false,
            });
            result
        });
        let result = running.await;
        let result = result.unwrap_or_else(|_panicked| Err("could not be run".to_owned()));
        result.map_err(|problem| Error::Plugin {
            command: command.program.clone(),
            problem,
        })
    }

    /// Marks a credential as refused by the API server: the next request runs the plugin.
    pub(super) async fn refuse(&self, credential: &Arc<Credential>) {
        if let Some(last) = self.last.lock().await.as_mut()
            && matches!(&last.result, Ok(known) if Arc::ptr_eq(known, credential))
        {
            last.is_refused = true;
        }
    }
}

impl PluginRun {
    fn serves(&self, command: &PluginCommand) -> bool {
        let is_good = match &self.result {
            Ok(credential) => !self.is_refused && credential.holds(clock()),
            Err(_) => false,
        };
        self.command == *command && (is_good || self.ended.elapsed() < AGAIN_AFTER)
    }
}

impl Credential {
    fn holds(&self, now: Timestamp) -> bool {
        let ends = self.ends.map(|ends| ends.duration_since(now));
        ends.is_none_or(|left| left > ENDS_SOON)
    }
}

impl PluginCommand {
    async fn run(&self, starts: &BlockingPool) -> Result<Credential, String> {
        let mut child = self.start(starts).await?;
        let group = ProcessGroup::of(&child);
        let ended = tokio::time::timeout(TIMEOUT, output(&mut child)).await;
        let after = humantime::format_duration(TIMEOUT);
        let output = match ended {
            Ok(output) => output,
            Err(_elapsed) => Err(format!("gave no answer in {after}")),
        };
        if output.is_ok() {
            group.leave();
        } else {
            drop(group);
            reap(child, starts).await?;
        }
        self.read(&output?)
    }

    /// Starts it on a thread of its own: the call returns only when the disk has given the program.
    async fn start(&self, starts: &BlockingPool) -> Result<Child, String> {
        let (command, runtime) = (self.clone(), Handle::current());
        let started = starts.run(TIMEOUT, move || {
            let _entered = runtime.enter();
            command.spawn()
        });
        let started = started.await;
        started.map_err(|no_answer| format!("cannot be started: {no_answer}"))?
    }

    fn spawn(&self) -> Result<Child, String> {
        let mut process = tokio::process::Command::new(&self.program);
        process.args(&self.args);
        process.envs(self.env.iter().map(|(name, value)| (name, value)));
        process.env("KUBERNETES_EXEC_INFO", &self.info);
        process.stdin(Stdio::null()).stdout(Stdio::piped());
        process.stderr(Stdio::piped()).process_group(0);
        let child = process.kill_on_drop(true).spawn();
        child.map_err(|error| match &self.hint {
            Some(hint) => format!("cannot be started: {error}: {hint}"),
            None => format!("cannot be started: {error}"),
        })
    }

    fn read(&self, output: &[u8]) -> Result<Credential, String> {
        let no = |what: &str| format!("printed no ExecCredential: {what}");
        let printed: Printed =
            serde_json::from_slice(output).map_err(|_text_is_secret| no("that is no such JSON"))?;
        if printed.kind != "ExecCredential" || printed.version != self.version {
            return Err(no(&format!("it must be of {}", self.version)));
        }
        let status = printed.status.ok_or_else(|| no("it has no status"))?;
        let set = |text: Option<String>| {
            let (text, from) = (text.filter(|text| !text.is_empty()), self.program.clone());
            text.map(|text| Secret {
                from,
                bytes: text.into(),
            })
        };
        let (token, certificate, key) =
            (set(status.token), set(status.certificate), set(status.key));
        let identity = match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Some((SecretSource::Inline(certificate), SecretSource::Inline(key)))
            }
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => {
                return Err(no("a certificate and its key come together"));
            }
        };
        if token.is_none() && identity.is_none() {
            return Err(no("it has neither a token nor a certificate"));
        }
        let ends = status.ends.map(|text| text.parse::<Timestamp>());
        let ends = ends.transpose();
        Ok(Credential {
            token,
            identity,
            ends: ends.map_err(|_error| no("its expirationTimestamp is no time"))?,
        })
    }
}

/// Waits a moment for a plugin that was killed. While it hangs in the kernel no other is started.
async fn reap(mut child: Child, starts: &BlockingPool) -> Result<(), String> {
    let runtime = Handle::current();
    let ended = starts.run(REAP, move || runtime.block_on(child.wait()).map(drop));
    match ended.await {
        Ok(_ended) => Ok(()),
        Err(no_answer) => Err(format!("was ended and has not gone: {no_answer}")),
    }
}

/// What a plugin prints.
#[derive(Deserialize)]
struct Printed {
    #[serde(rename = "apiVersion", default)]
    version: String,
    #[serde(default)]
    kind: String,
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
struct ExecCredentialStatus {
    token: Option<String>,
    #[serde(rename = "clientCertificateData")]
    certificate: Option<String>,
    #[serde(rename = "clientKeyData")]
    key: Option<String>,
    #[serde(rename = "expirationTimestamp")]
    ends: Option<String>,
}

/// Waits for the plugin's end; returns its output.
async fn output(child: &mut Child) -> Result<Vec<u8>, String> {
    let (out, errors) = (child.stdout.take(), child.stderr.take());
    let (out, errors) = tokio::try_join!(bounded(out), first_line(errors))?;
    let status = child.wait().await;
    let status = status.map_err(|error| format!("cannot be waited for: {error}"))?;
    if status.success() {
        return Ok(out);
    }
    let said = if errors.is_empty() {
        String::new()
    } else {
        format!(": {errors}")
    };
    Err(format!("failed ({status}){said}"))
}

async fn bounded(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let mut pipe = pipe.take(OUTPUT_MAX_BYTES + 1);
        let read = pipe.read_to_end(&mut bytes).await;
        read.map_err(|error| format!("cannot be read: {error}"))?;
    }
    if bytes.len() as u64 > OUTPUT_MAX_BYTES {
        return Err(format!("printed more than {OUTPUT_MAX_BYTES} bytes"));
    }
    Ok(bytes)
}

async fn first_line(pipe: Option<impl AsyncRead + Unpin>) -> Result<String, String> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // Quote the part that can be read; read on, so that the plugin does not block.
        let mut first = (&mut pipe).take(ERRORS_MAX_BYTES);
        let _told = first.read_to_end(&mut bytes).await;
        let _rest = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    }
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    Ok(line
        .unwrap_or_default()
        .chars()
        .take(ERROR_MAX_CHARS)
        .collect())
}

/// The plugin and what it started, which end with this value unless it is left.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.and_then(Pid::from_raw))
    }

    /// Leaves what a plugin that ended well has started.
    fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended by itself.
            let _ended = kill_process_group(group, Signal::KILL);
        }
    }
}
