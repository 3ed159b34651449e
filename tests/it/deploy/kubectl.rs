//! `deploy/kubectl-crisweep`, with a kubectl that forwards to a service on loopback.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use crate::support::ca::Ca;
use crate::support::service::text;
use crate::support::wait::{PATIENCE, until_true};
use crate::support::{Rig, nodes};

const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/kubectl-crisweep");

/// A directory with a kubectl: it forwards a port of this test to one pod until it is ended; another one is being
/// deleted. As the real one it warns on standard error, and fails where `items[0]` is of an empty list.
struct Cluster {
    dir: TempDir,
}

impl Cluster {
    /// `node-1` has a pod, whose port is that of the service.
    async fn with(service: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let service = service.to_owned();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let service = service.clone();
                tokio::spawn(async move {
                    let mut far = TcpStream::connect(service).await.unwrap();
                    let _copied = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        let kubectl = format!(
            "#!/bin/sh\n\
             echo \"$*\" >> {dir}/calls\n\
             case \"$*\" in *'get pods'*) echo 'Warning: the certificate is old' >&2 ;; esac\n\
             case \"$*\" in\n\
             *'get pods'*spec.nodeName=node-1,*'not .metadata.deletionTimestamp'*)\n\
               printf 'crisweep-abcde crisweep-fghij' ;;\n\
             *'get pods'*spec.nodeName=node-1,*) printf 'crisweep-aaaaa crisweep-abcde' ;;\n\
             *'get pods'*'items[0]'*) echo 'error: array index out of bounds' >&2; exit 1 ;;\n\
             *'get pods'*) ;;\n\
             *port-forward*pod/crisweep-abcde*)\n\
               echo $$ > {dir}/forward\n\
               echo 'Forwarding from 127.0.0.1:{port} -> 20950'\n\
               exec sleep 300 ;;\n\
             *) echo 'error: unknown command' >&2; exit 1 ;;\n\
             esac\n",
            dir = dir.path().display()
        );
        let path = dir.path().join("kubectl");
        fs::write(&path, kubectl).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn run(&self, program: &str, args: &[&str]) -> Output {
        self.run_with(program, args, &[]).await
    }

    async fn run_with(&self, program: &str, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = tokio::process::Command::new("sh");
        command
            .arg(PLUGIN)
            .args(args)
            .env_clear()
            .kill_on_drop(true);
        let path = format!("{}:/usr/bin:/bin", self.dir.path().display());
        command.env("PATH", path).env("CRISWEEP", program);
        command.envs(env.iter().copied());
        let output = tokio::time::timeout(PATIENCE, command.output());
        output.await.expect("it ends").unwrap()
    }

    /// Waits until the port-forward is gone.
    async fn has_no_forward(&self) {
        let pid = fs::read_to_string(self.path("forward")).unwrap();
        let proc = Path::new("/proc").join(pid.trim());
        until_true("the port-forward ends", || !proc.exists()).await;
    }

    fn calls(&self) -> String {
        fs::read_to_string(self.path("calls")).unwrap()
    }
}

#[tokio::test]
async fn it_asks_the_crisweep_of_a_node_and_ends_its_port_forward() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let cluster = Cluster::with(&rig.address).await;
    let program = env!("CARGO_BIN_EXE_crisweep");
    let output = cluster
        .run(program, &["-n", "tools", "node-1", "plan"])
        .await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.starts_with("containers: remove 2 "), "{shown}");
    assert!(
        cluster.calls().contains("--namespace tools get pods"),
        "{}",
        cluster.calls()
    );
    cluster.has_no_forward().await;
    // Its exit code is that of the command.
    let output = cluster
        .run(program, &["node-1", "explain", "nothing-has-this-name"])
        .await;
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    cluster.has_no_forward().await;
}

#[tokio::test]
async fn without_the_program_curl_gets_the_json() {
    let rig = Rig::start(nodes::litter(2), json!({})).await;
    let cluster = Cluster::with(&rig.address).await;
    let output = cluster.run("no-such-program", &["node-1", "status"]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["node"], "node-1");
    cluster.has_no_forward().await;
    let output = cluster.run("no-such-program", &["node-1", "gc"]).await;
    assert_eq!(output.status.code(), Some(2));
    cluster.has_no_forward().await;
}

#[tokio::test]
async fn a_service_with_tls_is_asked_by_the_name_in_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let shown = |name: &str| path(name).display().to_string();
    let ca = Ca::new();
    ca.write(&path("ca.crt"));
    let name = "crisweep.tools.svc";
    ca.sign(name)
        .write(&path("server.crt"), &path("server.key"));
    let web = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
    fs::write(path("web.yml"), web).unwrap();
    fs::write(path("token"), "token-that-may-read\n").unwrap();
    let changes = json!({ "web": {
        "config_file": path("web.yml"),
        "bearer_token_files": { "read": [path("token")] },
    } });
    let options = crisweep_sim::Options::default();
    let rig = Rig::unready(nodes::litter(2).build(), options, changes).await;
    let cluster = Cluster::with(&rig.address).await;
    let (ca_file, token) = (shown("ca.crt"), shown("token"));
    let right = [
        ("CRISWEEP_SERVER_NAME", name),
        ("CRISWEEP_CA_FILE", &ca_file),
        ("CRISWEEP_TOKEN_FILE", &token),
        // It is not asked.
        ("https_proxy", "http://127.0.0.1:9"),
    ];
    let wrong = [
        ("CRISWEEP_SERVER_NAME", "other.tools.svc"),
        right[1],
        right[2],
    ];
    let clear = [right[1], right[2]];
    for program in [env!("CARGO_BIN_EXE_crisweep"), "no-such-program"] {
        let args = ["node-1", "passes"];
        let output = cluster.run_with(program, &args, &right).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{program}: {said}");
        for env in [&wrong[..], &clear] {
            let output = cluster.run_with(program, &args, env).await;
            assert_ne!(output.status.code(), Some(0), "{program}: {env:?}");
        }
        cluster.has_no_forward().await;
    }
    let mut command = crate::support::service::program();
    let port = rig.address.rsplit(':').next().unwrap();
    let url = format!("--service.url=http://localhost:{port}");
    command.args(["passes", &url]).env(right[0].0, right[0].1);
    let output = command.output().await.unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("is not https://"), "{said}");
}

#[tokio::test]
async fn it_says_what_it_did_not_find() {
    let cluster = Cluster::with("127.0.0.1:9").await;
    let output = cluster.run("crisweep", &["node-2", "plan"]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no running pod") && said.contains("node-2"),
        "{said}"
    );
    for wrong in [&["node-1"][..], &["--node", "x", "plan"], &["-n"]] {
        assert_eq!(
            cluster.run("crisweep", wrong).await.status.code(),
            Some(2),
            "{wrong:?}"
        );
    }
}
