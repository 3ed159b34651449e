//! Commands as clients of a service that is named: `--service.url`, its token and its CA; and what they say where it does
//! not answer, refuses, or is none.

use std::fs;
use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};

use crate::support::bare::Bare;
use crate::support::ca::Ca;
use crate::support::service::{program, run, text};
use crate::support::{Rig, nodes};

fn url(rig: &Rig) -> String {
    format!("--service.url=http://{}", rig.address)
}

async fn ask(rig: &Rig, args: &[&str]) -> Output {
    let url = url(rig);
    run(&[args, &[&url]].concat()).await
}

/// Every command that asks a service.
const ASKING: [&[&str]; 8] = [
    &["plan"],
    &["gc"],
    &["gc", "--dry-run"],
    &["explain", "default/web"],
    &["passes"],
    &["evidence"],
    &["snapshot", "-"],
    &["plan", "--save"],
];

/// Returns what `status` says of a service on all addresses, in a network with this setting; needs root.
async fn said_in_network(setting: &str, args: &[&str]) -> String {
    let changes = json!({ "web": { "listen": [":20950"] } });
    let node = Bare::start(nodes::litter(1), &changes);
    let script = "echo 1 > /proc/sys/net/ipv6/$1 && ip link set lo up || exit 9
        config=$2; shift 2
        \"$0\" --config.file \"$config\" & service=$!
        for try in $(seq 50); do
            sleep 0.3; said=$(\"$0\" --config.file \"$config\" status \"$@\" 2>&1)
            case $said in *'service answers'*) break;; esac
        done
        kill $service; echo \"$said\"";
    let output = tokio::process::Command::new("unshare")
        .args(["--net", "sh", "-c", script])
        .args([env!("CARGO_BIN_EXE_crisweep"), setting])
        .arg(&node.config)
        .args(args)
        .output()
        .await
        .unwrap();
    let said = text(&output.stdout);
    assert!(
        !said.is_empty(),
        "this test makes a network, which needs root: {output:?}"
    );
    said
}

/// As in the pods of most networks without IPv6.
#[tokio::test]
async fn a_service_on_all_addresses_is_found_where_no_interface_has_ipv6() {
    let said = said_in_network("conf/all/disable_ipv6", &[]).await;
    let by = "the running service answers (127.0.0.1:20950)";
    assert!(said.contains(by), "{said}");
}

#[tokio::test]
async fn a_service_on_all_addresses_takes_ipv4_where_sockets_of_ipv6_do_not() {
    let url = "--service.url=http://127.0.0.1:20950";
    let said = said_in_network("bindv6only", &[url]).await;
    assert!(said.contains("the running service answers"), "{said}");
}

#[tokio::test]
async fn plan_shows_what_the_service_plans() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let output = ask(&rig, &["plan"]).await;
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    let by = format!("the running service answers (http://{})", rig.address);
    assert!(said.contains(&by), "{said}");
    for words in [
        "containers: remove 3 (pod-deleted 3)\n",
        "default/old-0 (deleted)\n",
        "  remove  pod-deleted       container app #0 ",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let all = text(&ask(&rig, &["plan", "--all"]).await.stdout);
    assert!(all.contains("its state is running"), "{all}");
    let output = ask(
        &rig,
        &["plan", "--output", "json", "--target", "containers"],
    )
    .await;
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["removals"].as_array().unwrap().len(), 3);
    assert!(plan["summary"].get("sandboxes").is_none());
    rig.nothing_was_touched();
}

#[tokio::test]
async fn plan_takes_its_options_to_the_service() {
    let changes = json!({ "pods": { "source": "none", "file": null } });
    let rig = Rig::start(nodes::litter(2), changes).await;
    let shown = text(&ask(&rig, &["plan"]).await.stdout);
    assert!(shown.contains("only surplus is removed"), "{shown}");
    assert!(shown.contains("containers: remove 0\n"), "{shown}");
    let args = [
        "plan",
        "--assume-finished-after=1h",
        "--max-dead=0",
        "--output=json",
    ];
    let output = ask(&rig, &args).await;
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        plan["summary"]["containers"]["remove"],
        json!({ "over-cap": 2 }),
        "{plan:#}"
    );
    assert_eq!(rig.get("/api/v1/plan?max_dead=few").await.status, 400);
}

#[tokio::test]
async fn gc_beside_a_service_has_the_service_run_the_pass() {
    let rig = Rig::start(nodes::litter(3), json!({})).await;
    let output = ask(&rig, &["gc"]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("runs the pass"), "{said}");
    assert!(said.contains("containers: batch 1: 3 of 3 gone"), "{said}");
    assert!(
        text(&output.stdout).starts_with("completed\n"),
        "{output:?}"
    );
    let pass = rig.passes().await.remove(0);
    assert_eq!(pass["trigger"]["cause"], "manual");
    assert_eq!(rig.exited_containers(), 0);
    let output = ask(&rig, &["gc", "--output", "json", "--force"]).await;
    let pass: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(pass["outcome"], "nothing-to-do");
}

#[tokio::test]
async fn a_credential_is_asked_for_by_the_name_of_its_flag_and_then_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("act"), "token-that-may-act\n").unwrap();
    fs::write(path("read"), "token-that-may-read\n").unwrap();
    let tokens = json!({ "read": [path("read")], "act": [path("act")] });
    let rig = Rig::unready(
        nodes::litter(2).build(),
        crisweep_sim::Options::default(),
        json!({ "web": { "bearer_token_files": tokens } }),
    )
    .await;
    for args in ASKING {
        let output = ask(&rig, args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(
            said.contains("401") && said.contains("--service.token-file"),
            "{args:?}: {said}"
        );
    }
    let token = |name: &str| format!("--service.token-file={}", path(name).display());
    let output = ask(&rig, &["gc", &token("read")]).await;
    let said = text(&output.stderr);
    assert!(
        said.contains("403") && said.contains("may read, but not act"),
        "{said}"
    );
    // It got one, and runs no pass.
    for words in ["name a credential", "runs the pass"] {
        assert!(!said.contains(words), "{said}");
    }
    let output = ask(&rig, &["plan", &token("read")]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = ask(&rig, &["gc", &token("act")]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut command = program();
    command
        .args(["passes", &url(&rig)])
        .env("CRISWEEP_TOKEN", "token-that-may-read");
    let output = command.output().await.unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("token-that-may-read"));
    let (flag, file) = (token("read"), path("act").into_os_string());
    for (more, code) in [(None, 2), (Some(&flag), 0)] {
        let mut command = program();
        command.args(["passes", &url(&rig)]).args(more);
        command.env("CRISWEEP_TOKEN", "token-that-may-read");
        command.env("CRISWEEP_TOKEN_FILE", &file);
        let output = command.output().await.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(
            said.contains("CRISWEEP_TOKEN and CRISWEEP_TOKEN_FILE"),
            more.is_none(),
            "{said}"
        );
    }
}

#[tokio::test]
async fn a_named_service_must_show_a_certificate_of_the_named_ca() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let ca = Ca::new();
    ca.write(&path("ca.crt"));
    ca.sign("localhost")
        .write(&path("server.crt"), &path("server.key"));
    Ca::new().write(&path("other.crt"));
    let web = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";
    fs::write(path("web.yml"), web).unwrap();
    let changes = json!({ "web": { "config_file": path("web.yml") } });
    let options = crisweep_sim::Options::default();
    let rig = Rig::unready(nodes::litter(1).build(), options, changes).await;
    let port = rig.address.rsplit(':').next().unwrap();
    let url = format!("--url=https://localhost:{port}");
    let with = |name: &str| format!("--service.ca-file={}", path(name).display());
    let output = run(&["passes", &url, &with("ca.crt")]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let output = run(&["passes", &url, &with("other.crt")]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let words = ": name its CA with --service.ca-file";
    assert!(said.contains(words), "{said}");
    let line = text(&run(&["check", &url, &with("other.crt")]).await.stdout);
    assert_eq!(
        line,
        "UNKNOWN: no crisweep answers; crisweep status says more [service]\n"
    );
    let plain = Rig::start(nodes::healthy(), json!({})).await;
    let plain = format!("--url=https://{}", plain.address);
    let output = run(&["passes", &plain, &with("ca.crt")]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let words = "(--service.url): it does not speak TLS: use http://";
    assert!(said.contains(words), "{said}");
    let output = run(&["passes", &url, &with("none.crt")]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("none.crt"), "{output:?}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let (ca, other) = (Ca::new(), Ca::new());
    ca.write(&path("ca.crt"));
    for (ca, name, host) in [
        (&ca, "server", "localhost"),
        (&ca, "client", "client.example"),
        (&other, "stranger", "client.example"),
    ] {
        let signed = ca.sign(host);
        signed.write(&path(&format!("{name}.crt")), &path(&format!("{name}.key")));
    }
    let web = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  client_ca_file: ca.crt\n  \
               client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [client.example]\n";
    fs::write(path("web.yml"), web).unwrap();
    let changes = json!({ "web": { "config_file": path("web.yml") } });
    let options = crisweep_sim::Options::default();
    let rig = Rig::unready(nodes::litter(1).build(), options, changes).await;
    let port = rig.address.rsplit(':').next().unwrap();
    let url = format!("--url=https://localhost:{port}");
    let flag = |flag: &str, name: &str| format!("--service.{flag}={}", path(name).display());
    let ca = flag("ca-file", "ca.crt");
    let shows = |name: &str| {
        [("cert-file", "crt"), ("key-file", "key")]
            .map(|(key, end)| flag(key, &format!("{name}.{end}")))
    };
    let ask = async |code: i32, more: &[String], words: &str| {
        let mut args = vec!["gc", "--dry-run", &url, &ca];
        args.extend(more.iter().map(String::as_str));
        let output = run(&args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{words:?} is not in: {said}");
    };
    ask(1, &[], "is none of crisweep's").await;
    ask(1, &shows("stranger"), "is none of crisweep's").await;
    ask(2, &shows("client")[..1], "need each other").await;
    ask(0, &shows("client"), "runs the pass").await;
    let check = text(&run(&["check", "--self", &url, &ca]).await.stdout);
    assert!(check.contains("no crisweep answers"), "{check}");
    let plain = run(&["plan", &format!("--url=http://localhost:{port}")]).await;
    assert!(
        text(&plain.stderr).contains("use https"),
        "{}",
        text(&plain.stderr)
    );
}

/// The service goes on with what it read before.
#[tokio::test]
async fn the_nodes_service_is_found_also_where_its_web_configuration_file_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let web = dir.path().join("web.yml");
    fs::write(&web, "").unwrap();
    let changes = json!({ "web": { "config_file": web } });
    let rig = Rig::start(nodes::litter(1), changes).await;
    fs::remove_file(&web).unwrap();
    let listen = format!("--web.listen-address={}", rig.address);
    let output = rig.command(&["gc", "--dry-run", &listen]).await;
    let said = text(&output.stderr);
    let words = format!("the service at {} runs the pass", rig.address);
    assert!(said.contains(&words), "{said}");
}

/// Answers each connection with these bytes; without any, never.
async fn answering(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if !bytes.is_empty() {
                let _read = stream.read(&mut [0; 1024]).await;
                let _written = stream.write_all(bytes).await;
            }
            open.push(stream);
        }
    });
    format!("--service.url=http://{address}")
}

#[tokio::test]
async fn what_is_no_crisweep_is_called_so() {
    let page = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\n\r\nhello";
    for bytes in [&page[..], b"220 smtp ready\r\n"] {
        let url = answering(bytes).await;
        for args in ASKING {
            let output = run(&[args, &[&url]].concat()).await;
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
            assert!(said.contains("is none of crisweep's"), "{args:?}: {said}");
            assert!(said.contains("--service.url"), "{args:?}: {said}");
        }
        let output = run(&["check", &url]).await;
        let line = text(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(line.starts_with("UNKNOWN: no crisweep answers"), "{line}");
    }
}

#[tokio::test]
async fn a_busy_service_is_called_so_and_its_pass_is_not_run_by_the_command() {
    let busy = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 21\r\nconnection: close\r\n\r\n{\"error\":\"too many\"}\n";
    let url = answering(busy).await;
    let output = run(&["gc", &url]).await;
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("answers 503") && said.contains("too many"),
        "{said}"
    );
}

#[tokio::test]
async fn a_credential_in_clear_text_is_said_by_the_command_that_acts() {
    let warns = async |url| text(&run(&["gc", url]).await.stderr).contains("in clear text");
    // No loopback address, but no other machine's either.
    assert!(warns("--service.url=http://ops:pw@0.0.0.0:9").await);
    assert!(!warns("--service.url=https://ops:pw@0.0.0.0:9").await);
    assert!(!warns("--service.url=http://ops:pw@127.0.0.1:9").await);
}

#[tokio::test]
async fn a_service_that_answers_nothing_holds_a_command_for_a_bounded_time() {
    let url = answering(b"").await;
    let began = Instant::now();
    let all = ASKING.map(|args| {
        let line = [args, &[&url]].concat();
        async move { (args, run(&line).await) }
    });
    for (args, output) in futures_util::future::join_all(all).await {
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("gives no answer in time"), "{args:?}: {said}");
    }
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn a_system_that_trusts_no_ca_is_no_reason_to_ask_nothing() {
    let (rig, dir) = Rig::with_socket(nodes::litter(3), json!({})).await;
    let socket = dir.path().join("crisweep.sock");
    for url in [url(&rig), format!("--url=unix:{}", socket.display())] {
        let mut command = program();
        command.args(["status", &url]);
        command
            .env("SSL_CERT_FILE", "/none")
            .env("SSL_CERT_DIR", "/none");
        let output = command.output().await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
}

#[tokio::test]
async fn a_service_that_is_down_and_a_url_that_is_none_are_named() {
    // Bound and not listening: it refuses, and no other test gets the port.
    let silent = TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = silent.local_addr().unwrap();
    let url = format!("--url=http://{free}");
    for args in ASKING {
        let output = run(&[args, &[&url]].concat()).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        let named = format!("no service answers at http://{free} (--service.url)");
        assert!(
            said.contains(&named) && said.contains("refused"),
            "{args:?}: {said}"
        );
    }
    let output = run(&["check", &url]).await;
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stdout),
        "UNKNOWN: no crisweep answers; crisweep status says more [service]\n"
    );
    let output = run(&["check", "--self", &url]).await;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stdout),
        "PROBLEM: no crisweep answers; crisweep status says more [service]\n"
    );
    for (args, words) in [
        (&["plan", "--url=node-1:20950"][..], "http://HOST:PORT"),
        (&["plan", "--url=unix:crisweep.sock"], "absolute path"),
        (&["plan", "--service.token-file=/x"], "need --service.url"),
        (
            &["plan", &url, "--service.token-file=/nowhere/token"],
            "/nowhere/token",
        ),
        (
            &["plan", &url, "--runtime-endpoint=/x"],
            "only one can be asked",
        ),
        (
            &["check", &url, "--runtime-endpoint=/x"],
            "only one can be asked",
        ),
        (&["serve", &url], "asks none"),
        (&["config", &url], "asks none"),
        (&["rules", "--token-file=/x"], "asks none"),
        (
            &["plan", "--url=http://node-1:20950/?a=1"],
            "http://HOST:PORT",
        ),
        (
            &["plan", "--save", "--runtime-endpoint=/x"],
            "leave out --runtime-endpoint",
        ),
        (
            &["gc", "--plan=x", "--runtime-endpoint=/x"],
            "leave out --runtime-endpoint",
        ),
    ] {
        let output = run(args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn a_password_in_the_url_is_never_shown() {
    let url = "--service.url=http://admin:hunter2@127.0.0.1:9";
    let said = text(&run(&["plan", url]).await.stderr);
    assert!(
        said.contains("http://127.0.0.1:9") && !said.contains("hunter2"),
        "{said}"
    );
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_no_error_and_one_that_cannot_be_written_is() {
    let rig = Rig::start(nodes::litter(30), json!({})).await;
    let url = url(&rig);
    for args in [
        &["plan", "--all"][..],
        &["plan", "--output=json"],
        &["gc", "--dry-run"],
        &["explain", "default/web"],
        &["passes"],
        &["passes", "--output=json"],
        &["evidence"],
        &["rules"],
        &["config"],
        &["--version"],
        &["--help"],
        &["gc", "-h"],
    ] {
        let asks = !matches!(
            *args,
            ["rules" | "config" | "--version" | "--help"] | [_, "-h"]
        );
        let (reader, closed) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = program();
        command.args(args).args(asks.then_some(&url));
        // Both are gone after `2>&1 | head`.
        command.stdout(closed.try_clone().unwrap()).stderr(closed);
        let status = command.status().await.unwrap();
        assert_eq!(status.code(), Some(0), "{args:?}");
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut line = args.to_vec();
        line.extend(asks.then_some(&*url));
        let output = crate::support::service::run_into(&line, full).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(
            said.contains("cannot write standard output: No space"),
            "{args:?}: {said}"
        );
    }
}
