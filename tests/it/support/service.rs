//! The program as a user runs it, in its own process that never outlives the test.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::process::{Child, Command};

use super::answer::Answer;
use super::metrics::Page;
use super::pipe::Pipe;
use super::wait::{PATIENCE, until, until_true};

/// How long any answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A running service.
pub(crate) struct Service {
    child: Child,
    log: PathBuf,
    client: reqwest::Client,
    /// Its address, `127.0.0.1:port`.
    pub(crate) address: String,
}

/// Returns the program without this process's environment variables that it would read.
pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crisweep"));
    command
        .env_clear()
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .current_dir("/");
    command
}

/// Returns what a program printed.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs the program to its end.
pub(crate) async fn run(args: &[&str]) -> Output {
    let running = program().args(args).output();
    tokio::time::timeout(PATIENCE, running)
        .await
        .expect("the command ends")
        .unwrap()
}

/// Runs the program to its end, with its standard output elsewhere.
pub(crate) async fn run_into(args: &[&str], stdout: impl Into<Stdio>) -> Output {
    let mut command = program();
    command.args(args).stdout(stdout).stderr(Stdio::piped());
    let running = command.spawn().unwrap().wait_with_output();
    tokio::time::timeout(PATIENCE, running)
        .await
        .expect("the command ends")
        .unwrap()
}

impl Service {
    /// Starts it and waits until it listens. Its log is beside its configuration.
    pub(crate) async fn start(config: &Path) -> Self {
        Self::start_as(program(), config).await
    }

    /// Starts it with its log in a pipe, which is read until it listens and no further.
    pub(crate) async fn start_piped(config: &Path) -> (Self, Pipe) {
        let mut pipe = Pipe::new();
        let mut command = program();
        command.arg("--config.file").arg(config);
        command.stdout(Stdio::null()).stderr(pipe.writer());
        let child = command.spawn().unwrap();
        let listening = tokio::task::spawn_blocking(move || {
            loop {
                let line: Value = serde_json::from_str(&pipe.line()).unwrap_or_default();
                if line["message"] == "listening" {
                    return (line["address"].as_str().unwrap().to_owned(), pipe);
                }
            }
        });
        let (address, pipe) = tokio::time::timeout(PATIENCE, listening)
            .await
            .expect("the service listens")
            .unwrap();
        let log = config.with_extension("log");
        let client = client();
        let service = Self {
            child,
            log,
            client,
            address,
        };
        (service, pipe)
    }

    /// The same on the demo's node, with its files beside the configuration too.
    pub(crate) async fn demo(config: &Path) -> Self {
        let mut command = program();
        command.env("TMPDIR", config.parent().unwrap()).arg("demo");
        Self::start_as(command, config).await
    }

    /// The same, by a command that gets the program's arguments.
    pub(crate) async fn start_as(mut command: Command, config: &Path) -> Self {
        let output = File::create(config.with_extension("log")).unwrap();
        command.stdout(output.try_clone().unwrap()).stderr(output);
        Self::listening(command, config).await
    }

    /// Starts it with its standard output elsewhere.
    pub(crate) async fn start_into(stdout: impl Into<Stdio>, config: &Path) -> Self {
        let mut command = program();
        let log = File::create(config.with_extension("log")).unwrap();
        command.stdout(stdout).stderr(log);
        Self::listening(command, config).await
    }

    async fn listening(mut command: Command, config: &Path) -> Self {
        let log = config.with_extension("log");
        command.arg("--config.file").arg(config);
        let mut child = command.spawn().unwrap();
        let address = until("the service listens", || {
            let listening = lines(&log)
                .into_iter()
                .find(|line| line["message"] == "listening");
            let exited = child.try_wait().unwrap();
            assert!(exited.is_none(), "{exited:?}: {}", log_text(&log));
            async move { Some(listening?["address"].as_str()?.to_owned()) }
        })
        .await;
        Self {
            child,
            log,
            client: client(),
            address,
        }
    }

    /// Starts a second one with the configuration of a rig, and waits until it is ready.
    pub(crate) async fn start_beside(rig: &super::Rig) -> Self {
        let config = rig.config_file().with_file_name("second.yaml");
        fs::copy(rig.config_file(), &config).unwrap();
        let second = Self::start(&config).await;
        second.ready().await;
        second
    }

    /// Stops it, and waits until it is gone.
    pub(crate) async fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        self.exited().await;
    }

    /// Returns a request to a path.
    pub(crate) fn request(&self, method: &str, path: &str) -> reqwest::RequestBuilder {
        let method = method.parse().unwrap();
        self.client
            .request(method, format!("http://{}{path}", self.address))
    }

    /// Gets a path.
    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request("GET", path)).await
    }

    /// Posts nothing to a path.
    pub(crate) async fn post(&self, path: &str) -> Answer {
        Answer::of(self.request("POST", path)).await
    }

    /// Posts JSON to a path.
    pub(crate) async fn post_json(&self, path: &str, body: &Value) -> Answer {
        Answer::of(self.request("POST", path).json(body)).await
    }

    /// Deletes a path.
    pub(crate) async fn delete(&self, path: &str) -> Answer {
        Answer::of(self.request("DELETE", path)).await
    }

    /// Runs a manual pass and returns it when it is done. `query` may be empty. The answer is 503 if the pass
    /// cannot look at the runtime.
    pub(crate) async fn gc(&self, query: &str) -> Value {
        let answer = self.post(&format!("/gc?wait=60s&{query}")).await;
        assert!([200, 503].contains(&answer.status), "{}", answer.text);
        let pass = answer.json();
        assert!(
            answer.status == 200 || pass["outcome"] == "aborted",
            "{pass:#}"
        );
        pass
    }

    /// Starts a manual pass and returns its id at once.
    pub(crate) async fn begin_gc(&self, query: &str) -> String {
        let answer = self.post(&format!("/gc?{query}")).await;
        assert_eq!(answer.status, 202, "{}", answer.text);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Returns a pass as it stands.
    pub(crate) async fn pass(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/passes/{id}")).await.json()
    }

    /// Waits for the end of a pass and returns it.
    pub(crate) async fn finished(&self, id: &str) -> Value {
        until("the pass ends", || async {
            let pass = self.pass(id).await;
            (pass["state"] == "done").then_some(pass)
        })
        .await
    }

    /// Returns every pass of the history, newest first.
    pub(crate) async fn passes(&self) -> Vec<Value> {
        let passes = self.get("/api/v1/passes").await.json();
        passes["passes"].as_array().unwrap().clone()
    }

    /// Waits until it is ready, and until its first look has ended, which may be later.
    pub(crate) async fn ready(&self) {
        self.listed().await;
        until("the first look has ended", || async {
            let page = self.get("/metrics").await;
            // Who may not read cannot tell.
            (page.status == 401 || page.text.contains("\ncri_up 1\n")).then_some(())
        })
        .await;
    }

    /// Waits until it is ready: the runtime's lists were read once.
    pub(crate) async fn listed(&self) {
        until("the service is ready", || async {
            (self.get("/-/ready").await.status == 200).then_some(())
        })
        .await;
    }

    /// Scrapes it.
    pub(crate) async fn metrics(&self) -> Page {
        let answer = self.get("/metrics").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        Page::parse(&answer.text)
    }

    /// Returns its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id().unwrap()
    }

    /// Returns its memory that the kernel cannot drop. Its code comes and goes.
    pub(crate) fn anonymous_kib(&self) -> u64 {
        self.memory_kib("RssAnon:")
    }

    /// Returns what `/proc/PID/status` says of its memory in one line.
    pub(crate) fn memory_kib(&self, line: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find(|it| it.starts_with(line));
        let number = line.and_then(|line| line.split_whitespace().nth(1));
        number.unwrap().parse().unwrap()
    }

    /// Sends it a signal, by its own process id.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let id = i32::try_from(self.pid()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
    }

    /// Waits until it has exited.
    pub(crate) async fn exited(&mut self) -> ExitStatus {
        let exit = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        exit.unwrap_or_else(|_| panic!("it does not exit: {}", log_text(&self.log)))
            .unwrap()
    }

    /// Returns its log, a value for each line.
    pub(crate) fn log(&self) -> Vec<Value> {
        lines(&self.log)
    }

    /// Returns its log as text.
    pub(crate) fn log_text(&self) -> String {
        log_text(&self.log)
    }

    /// Waits until at least so many log lines have this message, as a thread of its own writes them, and returns them.
    pub(crate) async fn logs(&self, count: usize, message: &str) -> Vec<Value> {
        let has_all = || self.logged(message).len() >= count;
        until_true(&format!("{message}: {count} lines"), has_all).await;
        self.logged(message)
    }

    /// Returns the log lines with this message.
    pub(crate) fn logged(&self, message: &str) -> Vec<Value> {
        let mut log = self.log();
        log.retain(|line| line["message"] == message);
        log
    }
}

fn client() -> reqwest::Client {
    // reqwest needs a TLS provider even without TLS; installing it twice fails.
    let _done = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .timeout(ANSWER_TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        // It speaks no TLS: reading the machine's certificates takes a debug build 8 ms of processor time.
        .tls_certs_only([])
        .build()
        .unwrap()
}

fn log_text(log: &Path) -> String {
    fs::read_to_string(log).unwrap_or_default()
}

/// The last line may be half written.
fn lines(log: &Path) -> Vec<Value> {
    log_text(log)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}
