//! Any bytes on the service's connections, with each kind of access. The service answers or closes, stays alive
//! and small, and does nothing for a client without a credential.
//!
//! Some clients send at the same time, each on a kept connection as long as it lasts. Inputs are not shrunk: they
//! depend on each other. A failure shows the client's last inputs.

mod client;
mod requests;

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::cases;
use crate::support::{Answer, Rig, nodes};
use client::Client;
use requests::{Credentials, Input, MARK, inputs};

/// Clients at a time.
const CLIENTS: u32 = 8;
/// Pause between two looks at the service.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Above it a run is long: it logs less, and its memory is held to the bound.
const LONG: u32 = 2_000;
/// How much memory may grow from the first half of a long run to the second.
const GROWTH_MAX_KIB: u64 = 4 << 10;

const TOKENS: Credentials = Credentials {
    read: "Bearer Fuzzed7oken-that-may-read",
    act: "Bearer Fuzzed7oken-that-may-act",
};
/// `eve:secret` and `ann:secret`.
const USERS: Credentials = Credentials {
    read: "Basic ZXZlOnNlY3JldA==",
    act: "Basic YW5uOnNlY3JldA==",
};
/// Of `secret`, with the lowest cost.
const HASH: &str = "$2b$04$McHJsvJ6j7l34FYdKf1RFOC3GwktfB2TdaLDFWTRjRyxNjLG6Rafm";

/// A service with its credentials.
struct Attacked {
    runtime: Runtime,
    rig: Option<Rig>,
    credentials: Option<Credentials>,
    /// Who asked for each pass.
    by: Value,
    _dir: TempDir,
}

impl Attacked {
    fn new(dir: TempDir, credentials: Option<Credentials>, web: &Value, by: Value) -> Self {
        let mut web = web.clone();
        web["listen"] = json!(["127.0.0.1:0"]);
        let level = if count() > LONG { "info" } else { "debug" };
        let changes = json!({
            "web": web,
            "collect": { "max_age": "1s" },
            "log": { "level": level },
        });
        let node = match credentials {
            None => nodes::healthy(),
            Some(_) => nodes::litter(3),
        };
        let runtime = Runtime::new().unwrap();
        let rig = runtime.block_on(Rig::start(node, changes));
        Self {
            runtime,
            rig: Some(rig),
            credentials,
            by,
            _dir: dir,
        }
    }

    fn rig(&self) -> &Rig {
        self.rig.as_ref().unwrap()
    }

    fn ask(&self, method: &str, path: &str) -> Answer {
        let mut request = self.rig().request(method, path);
        if let Some(credentials) = self.credentials {
            request = request.header("authorization", credentials.act);
        }
        self.runtime.block_on(Answer::of(request))
    }

    /// When the configuration was last read.
    fn read_at(&self) -> String {
        let page = self.ask("GET", "/metrics").text;
        let mut lines = page.lines();
        let line =
            lines.find(|line| line.starts_with("crisweep_config_last_reload_success_timestamp"));
        line.unwrap().to_owned()
    }

    /// Only dry runs were begun, and only by the client that may.
    fn did_nothing_for_strangers(&self) {
        if self.credentials.is_none() {
            return;
        }
        self.rig().nothing_was_touched();
        let answer = self.ask("GET", "/api/v1/passes");
        let passes = answer.json();
        for pass in passes["passes"].as_array().unwrap() {
            assert_eq!(pass["dry_run"], true, "{pass:#}");
            assert_eq!(pass["trigger"]["by"], self.by, "{pass:#}");
        }
    }

    fn logged_no_secret(&self) {
        let log = self.rig().log_text();
        let encoded = STANDARD.encode(format!("ann:{MARK}"));
        let secrets = [
            MARK,
            &encoded,
            "ZXZlOnNlY3JldA",
            "YW5uOnNlY3JldA",
            "panicked",
        ];
        for secret in secrets {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "contains {secret}");
        }
    }

    /// Attacks it; asserts that it is as before.
    fn withstands(mut self) {
        let read_at = self.read_at();
        let began = Instant::now();
        let halves = self.attacked();
        let took = began.elapsed();
        let rate = f64::from(count()) / took.as_secs_f64();
        println!(
            "{} inputs in {took:.1?}, {rate:.0} each second; most memory: {halves:?} KiB",
            count()
        );
        if count() > LONG {
            assert!(halves[1] <= halves[0] + GROWTH_MAX_KIB, "{halves:?}");
        }
        self.did_nothing_for_strangers();
        if self.credentials.is_some() {
            assert_eq!(self.read_at(), read_at);
        }
        assert_eq!(self.ask("GET", "/-/healthy").status, 200);
        let pass = self.ask("POST", "/gc?wait=60s");
        assert_eq!(pass.status, 200, "{}", pass.text);
        assert_eq!(pass.json()["errors"], json!([]), "{}", pass.text);
        self.logged_no_secret();
        let _inside = self.runtime.enter();
        drop(self.rig.take());
    }

    /// Returns the most memory in each half; the first tenth is warm-up and counts for neither.
    fn attacked(&self) -> [u64; 2] {
        let done = AtomicU32::new(0);
        let mut halves = [0; 2];
        thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    scope.spawn({
                        let done = &done;
                        move || self.client(number, done)
                    })
                })
                .collect();
            while !clients.iter().all(thread::ScopedJoinHandle::is_finished) {
                self.did_nothing_for_strangers();
                let done = done.load(Ordering::Relaxed);
                if done > count() / 10 {
                    let half = &mut halves[usize::from(done > count() / 2)];
                    *half = self.rig().anonymous_kib().max(*half);
                }
                thread::sleep(LOOK_EVERY);
            }
        });
        halves
    }

    fn client(&self, number: u32, done: &AtomicU32) {
        let inputs = inputs(self.credentials);
        let mut runner = TestRunner::new(cases());
        let mut client = Client::new(&self.rig().address);
        for _ in (number..count()).step_by(CLIENTS as usize) {
            let input = inputs.new_tree(&mut runner).unwrap().current();
            for answer in client.send(&input) {
                if let Err(why) = self.judge(&input, &answer) {
                    client.fail(&format!("{why}: {answer}"));
                }
            }
            done.fetch_add(1, Ordering::Relaxed);
        }
        if count() > LONG {
            client.end();
        }
    }

    fn judge(&self, input: &Input, answer: &client::Answer) -> Result<(), &'static str> {
        let status = answer.status;
        if status >= 500 && status != 503 {
            return Err("a fault of the service");
        }
        if status == 401 && answer.header("www-authenticate").is_none() {
            return Err("a refusal that does not ask for credentials");
        }
        let content = answer.header("content-type");
        if content == Some("application/json")
            && !answer.body.is_empty()
            && serde_json::from_slice::<serde::de::IgnoredAny>(&answer.body).is_err()
        {
            return Err("no JSON");
        }
        let is_probe = content == Some("text/plain; charset=utf-8")
            && (answer.body.is_empty() || answer.body.starts_with(b"crisweep is "));
        if self.credentials.is_some() && !input.may_read && status < 300 && !is_probe {
            return Err("a client without a credential was served");
        }
        Ok(())
    }
}

fn count() -> u32 {
    cases().cases
}

#[test]
fn any_bytes_are_answered_or_refused_without_credentials() {
    let dir = TempDir::new().unwrap();
    Attacked::new(dir, None, &json!({}), Value::Null).withstands();
}

#[test]
fn no_bytes_act_without_a_token() {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, header: &str| {
        let path = dir.path().join(name);
        fs::write(&path, header.strip_prefix("Bearer ").unwrap()).unwrap();
        path
    };
    let files = json!({ "read": [write("read.file", TOKENS.read)], "act": [write("act.file", TOKENS.act)] });
    let by = json!({ "kind": "token", "name": "act.file" });
    let web = json!({ "bearer_token_files": files });
    Attacked::new(dir, Some(TOKENS), &web, by).withstands();
}

#[test]
fn no_bytes_act_without_a_password() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("web.yml");
    fs::write(
        &path,
        format!("basic_auth_users:\n  ann: {HASH}\n  eve: {HASH}\n"),
    )
    .unwrap();
    let by = json!({ "kind": "user", "name": "ann" });
    let web = json!({ "config_file": path, "act_users": ["ann"] });
    Attacked::new(dir, Some(USERS), &web, by).withstands();
}
