use std::os::unix::net::UnixListener;

use tempfile::TempDir;
use tonic::Code;

use super::*;
use crisweep_sim::{Fault, NodeBuilder, Options, Rpc, Sim};

/// A directory with the socket of a runtime.
fn runtime() -> (TempDir, Sim) {
    let dir = tempfile::tempdir().unwrap();
    let node = NodeBuilder::new().build();
    let sim = Sim::start(dir.path().join("cri.sock"), node, Options::default());
    (dir, sim.unwrap())
}

fn nowhere(dir: &Path) -> EndpointSources {
    EndpointSources {
        flag: None,
        config: None,
        environment: None,
        crictl_config: dir.join("crictl.yaml"),
        well_known: Vec::new(),
    }
}

#[test]
fn endpoints_as_crictl_and_the_kubelet_write_them() {
    for value in ["unix:///run/x.sock", "unix:/run/x.sock", "/run/x.sock"] {
        assert_eq!(
            parse_endpoint(value, "a test").unwrap(),
            Path::new("/run/x.sock"),
            "{value}"
        );
    }
    assert_eq!(
        parse_endpoint("/run/a:b", "a test").unwrap(),
        Path::new("/run/a:b")
    );
}

#[test]
fn other_endpoints_are_refused_with_their_origin() {
    let long = format!("/{}", "x".repeat(107));
    for value in [
        "tcp://127.0.0.1:1",
        "npipe:////./pipe/x",
        "unix://run/x.sock",
        "unix:",
        "run/x.sock",
        "",
        &long,
    ] {
        let error = parse_endpoint(value, "--runtime-endpoint").unwrap_err();
        let start = format!(
            "runtime endpoint \"{value}\" (from --runtime-endpoint) is not a unix socket such as "
        );
        assert!(error.to_string().starts_with(&start), "{error}");
    }
    assert!(parse_endpoint(&long[..107], "a test").is_ok());
}

#[tokio::test]
async fn the_first_that_is_named_wins_and_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(
        dir.path().join("crictl.yaml"),
        "runtime-endpoint: unix:///from/crictl\n",
    )
    .unwrap();
    let mut places = nowhere(dir.path());
    places.flag = Some("unix:///from/flag".to_owned());
    places.config = Some("/from/config".to_owned());
    places.environment = Some("unix:/from/environment".to_owned());

    let mut found = Vec::new();
    for forget in [
        |_: &mut EndpointSources| {},
        |places: &mut EndpointSources| places.flag = Some(String::new()),
        |places: &mut EndpointSources| places.config = None,
        |places: &mut EndpointSources| places.environment = Some(" ".to_owned()),
    ] {
        forget(&mut places);
        let DiscoveredEndpoint { path, why } = discover(&places).await.unwrap();
        found.push(format!("{}: {why}", path.display()));
    }
    let crictl = places.crictl_config.display();
    let expected = [
        "/from/flag: set by --runtime-endpoint".to_owned(),
        "/from/config: set by runtime.endpoint in the configuration".to_owned(),
        "/from/environment: set by CONTAINER_RUNTIME_ENDPOINT".to_owned(),
        format!("/from/crictl: set by runtime-endpoint in {crictl}"),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn an_invalid_named_endpoint_is_refused_and_no_other_is_tried() {
    let (dir, sim) = runtime();
    let places = EndpointSources {
        well_known: vec![sim.socket().to_owned()],
        ..nowhere(dir.path())
    };
    let bad_flag = EndpointSources {
        flag: Some("tcp://x".to_owned()),
        ..places.clone()
    };
    let error = discover(&bad_flag).await.unwrap_err();
    assert!(
        error.to_string().contains("(from --runtime-endpoint) "),
        "{error}"
    );
    std::fs::write(&places.crictl_config, "runtime-endpoint: tcp://x\n").unwrap();
    let error = discover(&places).await.unwrap_err();
    assert!(
        error.to_string().contains("(from runtime-endpoint in "),
        "{error}"
    );
}

#[tokio::test]
async fn the_first_known_socket_that_speaks_cri_is_taken() {
    let (dir, sim) = runtime();
    let path = sim.socket().to_owned();
    let missing = dir.path().join("missing.sock");
    let places = EndpointSources {
        well_known: vec![missing, path.clone()],
        ..nowhere(dir.path())
    };
    let found = discover(&places).await.unwrap();
    assert_eq!(
        found,
        DiscoveredEndpoint {
            path,
            why: "containerd 1.7.24 answers there".to_owned()
        }
    );
}

#[tokio::test]
async fn a_runtime_that_is_still_starting_is_taken() {
    let (dir, sim) = runtime();
    let path = sim.socket().to_owned();
    let fault = Fault::fail(Code::Unknown, "server is not initialized yet");
    sim.set_fault(Rpc::Version, fault);
    let places = EndpointSources {
        well_known: vec![path.clone()],
        ..nowhere(dir.path())
    };
    let found = discover(&places).await.unwrap();
    assert_eq!(found.path, path);
    assert!(
        found.why.starts_with("a runtime starts there"),
        "{}",
        found.why
    );
}

#[tokio::test]
async fn nothing_found_lists_each_place_and_its_problem() {
    let (dir, sim) = runtime();
    let other = sim.socket().to_owned();
    let text = "unknown service runtime.v1.RuntimeService";
    sim.set_fault(Rpc::Version, Fault::fail(Code::Unimplemented, text));
    let file = dir.path().join("file.sock");
    std::fs::write(&file, "").unwrap();
    let dead = dir.path().join("dead.sock");
    drop(UnixListener::bind(&dead).unwrap());
    let missing = dir.path().join("missing.sock");
    let long = dir.path().join("x".repeat(120));
    let well_known = vec![
        missing.clone(),
        file.clone(),
        dead.clone(),
        other.clone(),
        long,
    ];
    let places = EndpointSources {
        well_known,
        ..nowhere(dir.path())
    };

    let text = discover(&places).await.unwrap_err().to_string();
    let line = |path: &Path, problem: &str| format!("  {}: {problem}", path.display());
    for expected in [
        "no container runtime found; tried:".to_owned(),
        "  --runtime-endpoint: not set".to_owned(),
        "  CONTAINER_RUNTIME_ENDPOINT: not set".to_owned(),
        line(&places.crictl_config, "no such file or directory"),
        line(&missing, "no such file or directory"),
        line(&file, "not a socket"),
        line(&dead, "connection refused"),
        line(
            &other,
            "no CRI answer: Version: Unimplemented: unknown service runtime.v1.RuntimeService",
        ),
    ] {
        assert!(
            text.lines().any(|line| line == expected),
            "{expected} is not in\n{text}"
        );
    }
    assert!(
        text.ends_with("or try crisweep demo, which needs none"),
        "{text}"
    );
}

#[tokio::test]
async fn an_unusable_crictl_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let places = nowhere(dir.path());
    let deep = format!("a: {}{}\n", "[".repeat(20), "]".repeat(20));
    for (text, problem) in [
        ("timeout: 2\n", "names no runtime-endpoint"),
        ("runtime-endpoint: \"\"\n", "names no runtime-endpoint"),
        ("", "names no runtime-endpoint"),
        ("a: b: c\n", "not understood: "),
        (&deep, "not understood: "),
        (&"#".repeat(70_000), "it is larger than 65536 bytes"),
    ] {
        std::fs::write(&places.crictl_config, text).unwrap();
        let error = discover(&places).await.unwrap_err().to_string();
        let expected = format!("crictl.yaml: {problem}");
        assert!(error.contains(&expected), "{expected} is not in\n{error}");
    }
}

#[test]
fn the_usual_places_are_sockets_addresses() {
    for path in EndpointSources::usual().well_known {
        assert_eq!(
            parse_endpoint(path.to_str().unwrap(), "a test").unwrap(),
            path
        );
    }
}
