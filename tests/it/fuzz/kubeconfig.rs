//! Kubeconfig files, and what credential plugins print: any content is used, or refused with a reason that names the
//! setting and shows no secret.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use crisweep::kubernetes::{ApiClient, ApiServer};
use crisweep::system::blocking::BlockingPool;
use crisweep::telemetry::chain;
use proptest::prelude::*;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::{cases, edited, edits};

/// No request gets past its CA, so nothing is asked, and no name is looked up.
const SAMPLE: &str = r"
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- name: c
  cluster:
    server: https://127.0.0.1:1
    certificate-authority-data: eA==
    tls-server-name: kubernetes.default
    extensions:
    - {name: client.authentication.k8s.io/exec, extension: {audience: a}}
users:
- name: u
  user: {token: s3cr3t-value}
- name: plugin
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: ./no-such-plugin
      args: [get-token]
      env:
      - {name: A, value: s3cr3t-value}
      interactiveMode: Never
      provideClusterInfo: true
      installHint: install it
contexts:
- {name: one, context: {cluster: c, user: u, namespace: n}}
- {name: two, context: {cluster: c, user: plugin}}
current-context: two
";

const WORDS: &[&str] = &[
    ": ",
    "- ",
    "\n",
    "\n  ",
    "[",
    "]",
    "{",
    "}",
    "&a ",
    "*a",
    "!!str ",
    "!!binary ",
    "|\n",
    ">",
    "'",
    "\"",
    "#",
    "---\n",
    "<<: ",
    "? ",
    "~",
    "\t",
    "null",
    "true",
    "0x10",
    "\u{feff}",
    "\u{0}",
    "exec:",
    "current-context: one",
];

const PRINTED: &str = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":
    {"token":"s3cr3t-value","clientCertificateData":"s3cr3t-value","clientKeyData":"s3cr3t-value",
    "expirationTimestamp":"2999-01-01T00:00:00Z"}}"#;

const JSON_WORDS: &[&str] = &[
    ",",
    ":",
    "{",
    "}",
    "[",
    "]",
    "\"",
    "\\u0000",
    "\\ud800",
    "null",
    "true",
    "1e999",
    "-1",
    "{\"status\":",
    "\"status\":{\"token\":\"s3cr3t-value\"},",
    "\"token\":\"s3cr3t-value\\n\",",
    "\n",
    "\u{feff}",
];

/// A directory for kubeconfig files, and what drives a client.
struct Bench {
    dir: TempDir,
    runtime: Runtime,
}

impl Bench {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Self {
            dir: tempfile::tempdir().unwrap(),
            runtime: runtime.unwrap(),
        }
    }

    /// Asks the server of a kubeconfig file; returns why there is no answer.
    fn refusal(&self, kubeconfig: &[u8]) -> String {
        let path = self.dir.path().join("kubeconfig");
        fs::write(&path, kubeconfig).unwrap();
        let server = ApiServer::Kubeconfig {
            path: path.clone(),
            context: None,
        };
        let client = ApiClient::new(server, 1 << 20, BlockingPool::new(1));
        let answer = self.runtime.block_on(async {
            let asking = client.get("/version");
            tokio::time::timeout(Duration::from_secs(60), asking).await
        });
        let text = chain(&answer.expect("it never hangs").unwrap_err());
        let is_named = text.contains("pods.api_kubeconfig")
            || text.contains(&path.display().to_string())
            || text.contains("the client certificate in")
            || text.contains("holds no")
            || text.contains("no answer")
            || text.contains("it is not an HTTP URL");
        assert!(is_named, "{text}");
        assert!(!text.contains("s3cr3t"), "{text}");
        assert!(text.len() < 8 << 10, "{} bytes", text.len());
        text
    }

    /// The same with a plugin that prints these bytes.
    fn refusal_of_plugin(&self, printed: &[u8]) -> String {
        let plugin = self.dir.path().join("plugin");
        if !plugin.exists() {
            fs::write(
                &plugin,
                "#!/bin/sh\nexec cat \"$(dirname \"$0\")/printed\"\n",
            )
            .unwrap();
            fs::set_permissions(&plugin, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(self.dir.path().join("printed"), printed).unwrap();
        let text = self.refusal(SAMPLE.replace("no-such-plugin", "plugin").as_bytes());
        // A panic would end the task that runs the plugin.
        assert!(!text.contains("could not be run"), "{text}");
        text
    }
}

#[test]
fn any_change_to_a_kubeconfig_file_is_used_or_refused_without_its_secrets() {
    let bench = Bench::new();
    assert!(
        bench
            .refusal(SAMPLE.as_bytes())
            .contains("cannot be started")
    );
    proptest!(cases(), |(edits in edits(WORDS))| {
        bench.refusal(&edited(SAMPLE.as_bytes().to_vec(), &edits));
    });
}

#[test]
fn any_bytes_are_no_kubeconfig_file_or_one() {
    let bench = Bench::new();
    proptest!(cases(), |(bytes in prop::collection::vec(any::<u8>(), 0..300))| {
        bench.refusal(&bytes);
    });
}

#[test]
fn a_kubeconfig_file_that_would_grow_without_end_is_refused() {
    let bench = Bench::new();
    let large = format!("{SAMPLE}# {}\n", "x".repeat(1 << 20));
    let text = bench.refusal(large.as_bytes());
    assert!(text.contains("pods.api_kubeconfig"), "{text}");
    // Ten to the ninth items.
    let levels = (1..9).map(|level| {
        let names = vec![format!("*l{}", level - 1); 10];
        format!("l{level}: &l{level} [{}]\n", names.join(", "))
    });
    refused_anywhere(&format!("l0: &l0 [x]\n{}", levels.collect::<String>()));
    for deep in ["[", "{a: "] {
        refused_anywhere(&deep.repeat(200_000));
    }
    // Few enough that only the depth counts.
    for deep in ["- ", "? ", "[", "{a: "] {
        refused_anywhere(&deep.repeat(1_000));
    }
}

fn refused_anywhere(hostile: &str) {
    let bench = Bench::new();
    let text = bench.refusal(hostile.as_bytes());
    assert!(text.contains("pods.api_kubeconfig"), "{text}");
    let within = hostile.replace('\n', "\n    ");
    let extended = format!("{SAMPLE}extensions:\n- name: x\n  extension:\n    {within}\n");
    bench.refusal(extended.as_bytes());
}

#[test]
fn any_change_to_what_a_plugin_prints_is_used_or_refused_without_its_secrets() {
    let bench = Bench::new();
    let used = bench.refusal_of_plugin(PRINTED.as_bytes());
    assert!(used.contains("holds no"), "it got as far as the CA: {used}");
    proptest!(cases(), |(edits in edits(JSON_WORDS))| {
        bench.refusal_of_plugin(&edited(PRINTED.as_bytes().to_vec(), &edits));
    });
    let deep = format!("{{\"status\":{}", "[".repeat(100_000));
    let text = bench.refusal_of_plugin(deep.as_bytes());
    assert!(text.contains("printed no ExecCredential"), "{text}");
}
