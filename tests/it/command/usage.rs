//! `crisweep config`, `--help`, `--version`, and refused arguments.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use crate::support::rig::{config, write};
use crate::support::service::{program, run, text};

#[tokio::test]
async fn config_prints_the_effective_configuration_which_loads_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(
        dir.path(),
        &config(dir.path(), &json!({ "gc": { "batch_size": 7 } })),
    );
    let output = run(&["config", file.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    for line in [
        "batch_size: 7",
        "max_concurrency: 8",
        "name: node-1",
        "mode: enforce",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    let again = dir.path().join("again.yaml");
    fs::write(&again, &printed).unwrap();
    let output = run(&["--config.file", again.to_str().unwrap(), "config"]).await;
    assert_eq!(text(&output.stdout), printed);
}

/// No flag names that file, so the answer must.
#[tokio::test]
async fn the_usual_file_is_named_where_it_is_refused() {
    let script = "mount -t tmpfs crisweep-test /etc && mkdir /etc/crisweep \
        && echo 'gc: { batch_sise: 3 }' > /etc/crisweep/crisweep.yaml && exec \"$0\" \"$1\"";
    for command in ["plan", "check"] {
        // A mount that only this command sees; needs root.
        let output = std::process::Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .args([env!("CARGO_BIN_EXE_crisweep"), command])
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        for words in ["/etc/crisweep/crisweep.yaml", "gc.batch_sise"] {
            assert!(said.contains(words), "{command}: {said}");
        }
    }
}

#[tokio::test]
async fn config_refuses_with_2_and_names_every_key() {
    let dir = tempfile::tempdir().unwrap();
    let changes = json!({
        "gc": { "batch_size": 0, "batchsize": 1 },
        "policy": { "containers": { "min_age": "soon" } },
        "mode": "careful",
    });
    let file = write(dir.path(), &config(dir.path(), &changes));
    let file = file.to_str().unwrap();
    for args in [
        &["config", file][..],
        &["--config.file", file, "plan"],
        &["--config.file", file],
    ] {
        let output = run(args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty());
        let said = text(&output.stderr);
        for key in [
            "gc.batch_size",
            "gc.batchsize",
            "policy.containers.min_age",
            "mode",
        ] {
            assert!(said.contains(key), "{key}: {said}");
        }
    }
    let output = run(&["config", "/nowhere/crisweep.yaml"]).await;
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("/nowhere/crisweep.yaml"));
}

#[tokio::test]
async fn a_file_that_the_configuration_names_is_refused_with_2_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), &config(dir.path(), &json!({})));
    let (file, missing) = (file.to_str().unwrap(), dir.path().join("missing"));
    let missing = missing.to_str().unwrap();
    for flag in ["--web.config.file", "--config.file"] {
        let mut args = vec!["serve", flag, missing];
        if flag != "--config.file" {
            args.extend(["--config.file", file]);
        }
        let output = run(&args).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(missing), "{said}");
    }
    let tokens = json!({ "web": { "bearer_token_files": { "act": [missing] } } });
    let file = write(dir.path(), &config(dir.path(), &tokens));
    let output = run(&["serve", "--config.file", file.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[tokio::test]
async fn config_refuses_what_a_start_refuses_without_reading_the_files_that_are_named() {
    let dir = tempfile::tempdir().unwrap();
    for (web, words) in [
        (json!({ "act_users": ["ann"] }), "web.act_users"),
        (json!({ "act_client_sans": ["ann"] }), "web.act_client_sans"),
        (
            json!({ "bearer_token_files": { "read": ["/t/a", "/t/b"], "act": ["/t/b"] } }),
            "/t/b and /t/b hold the same token",
        ),
    ] {
        let file = write(dir.path(), &config(dir.path(), &json!({ "web": web })));
        let output = run(&["config", file.to_str().unwrap()]).await;
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(words), "{said}");
    }
    let elsewhere = json!({ "web": {
        "config_file": "/nowhere/web.yml",
        "act_users": ["ann"],
        "bearer_token_files": { "act": ["/nowhere/token"] },
    } });
    let file = write(dir.path(), &config(dir.path(), &elsewhere));
    let output = run(&["config", file.to_str().unwrap()]).await;
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[tokio::test]
async fn a_variable_that_is_no_text_is_refused_by_its_name() {
    let ask = async |args: &[&str], name: &OsStr, value: &OsStr| {
        let mut command = program();
        command.env("CRISWEEP_URL", "https://127.0.0.1:9");
        let output = command.args(args).env(name, value).output().await.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name:?}: {said}");
        said
    };
    let garbled = OsStr::from_bytes(b"http://node-7:20950\xff");
    for name in [
        "CRISWEEP_URL",
        "CRISWEEP_TOKEN_FILE",
        "CRISWEEP_TOKEN",
        "CRISWEEP_CA_FILE",
        "CRISWEEP_CERT_FILE",
        "CRISWEEP_KEY_FILE",
        "CRISWEEP_SERVER_NAME",
        "CRISWEEP__NODE__NAME",
    ] {
        for command in ["gc", "check"] {
            let said = ask(&[command], OsStr::new(name), garbled).await;
            assert!(said.contains(name) && said.contains("UTF-8"), "{said}");
        }
    }
    let name = OsStr::from_bytes(b"CRISWEEP__MO\xff");
    let said = ask(&["config"], name, OsStr::new("1")).await;
    assert!(said.contains("CRISWEEP__MO"), "{said}");
}

#[tokio::test]
async fn version_and_help_answer_without_any_runtime() {
    let output = run(&["--version"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with(concat!("crisweep ", env!("CARGO_PKG_VERSION"))));
    let output = run(&["--help"]).await;
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("--config.file"));
}

#[tokio::test]
async fn a_manual_page_describes_options_that_the_short_help_leaves_out() {
    for (page, words) in [
        (&["man"][..], "Address to listen on"),
        (&["man", "evidence"], "Of pods of this namespace"),
    ] {
        let output = run(page).await;
        assert!(text(&output.stdout).contains(words), "{page:?}");
    }
}

#[tokio::test]
async fn unknown_flags_commands_and_targets_are_refused_with_2() {
    for (args, words) in [
        (&["--config-file", "x"][..], "--config-file"),
        (&["sweep"], "sweep"),
        (&["gc", "--target", "pods"], "unknown target \"pods\""),
        (&["gc", "--max-removals", "many"], "many"),
        (&["serve", "--url", "http://a:1"], "this one asks none"),
        (
            &["check", "--self", "--runtime-endpoint=/x"],
            "leave out --runtime-endpoint",
        ),
        (&["plan", "--output", "xml"], "xml"),
        (&["--log.level", "loud", "plan"], "log.level"),
        (&["--runtime-endpoint", "tcp://1.2.3.4:5", "plan"], "unix"),
    ] {
        let output = run(args).await;
        assert_eq!(
            output.status.code(),
            Some(2),
            "{args:?}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(words),
            "{}",
            text(&output.stderr)
        );
    }
}

#[tokio::test]
async fn a_missing_file_is_reported_as_missing() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["crisweep.yaml", "crisweep", "crisweep.conf"] {
        let path = dir.path().join(name);
        let output = run(&["config", path.to_str().unwrap()]).await;
        assert_eq!(output.status.code(), Some(2), "{name}");
        let said = text(&output.stderr);
        assert!(said.contains("No such file"), "{name}: {said}");
    }
}

#[tokio::test]
async fn rules_prints_the_shipped_file_and_its_variants() {
    let shipped = fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/alerts/crisweep.rules.yaml"
    ));
    let output = run(&["rules"]).await;
    assert_eq!(text(&output.stdout), shipped.unwrap());
    let output = run(&["rules", "--labels", "cluster,region", "--operator"]).await;
    assert!(text(&output.stdout).contains("by (cluster, region, node)"));
    let output = run(&["rules", "--labels=node"]).await;
    assert_eq!(output.status.code(), Some(2));
}
