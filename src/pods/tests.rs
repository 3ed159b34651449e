//! When an answer is believed, and who is asked.

use jiff::SignedDuration;

use super::*;
use crate::kubernetes::ApiServer;
use crate::outgoing::TlsConfig;

#[expect(clippy::disallowed_methods, reason = "files are dated by the clock")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// A look that begins now.
fn look() -> LookStart {
    look_at(now())
}

/// A look that begins now, at this time by the wall clock.
fn look_at(at: Timestamp) -> LookStart {
    let began = Instant::now();
    LookStart { at, began }
}

/// Moves the clock. It is not paused during a file read, which is another thread's work.
async fn later(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

#[tokio::test]
async fn settles_from_the_first_good_answer_and_anew_after_a_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods.json");
    let settle = Duration::from_secs(10);
    let mut source = PodSource::new(Source::File(path.clone()), "n1", settle, settle);
    assert!(matches!(
        source.read(look(), Freshness::Cached, |_| true).await.pods,
        Pods::Unknown(PodsUnknown::Failed(_))
    ));
    std::fs::write(&path, br#"{"items":[]}"#).unwrap();
    assert_eq!(
        source.read(look(), Freshness::Cached, |_| true).await.pods,
        Pods::Unknown(PodsUnknown::Settling)
    );
    later(settle).await;
    assert!(matches!(
        source.read(look(), Freshness::Cached, |_| true).await.pods,
        Pods::Known(_)
    ));
    std::fs::write(&path, b"{").unwrap();
    assert!(matches!(
        source.read(look(), Freshness::Cached, |_| true).await.pods,
        Pods::Unknown(PodsUnknown::Failed(_))
    ));
    std::fs::write(&path, br#"{"items":[]}"#).unwrap();
    assert_eq!(
        source.read(look(), Freshness::Cached, |_| true).await.pods,
        Pods::Unknown(PodsUnknown::Settling)
    );
}

#[tokio::test]
async fn each_source_settles_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one.json"), dir.path().join("two.json"));
    std::fs::write(&one, br#"{"items":[]}"#).unwrap();
    std::fs::write(&two, br#"{"items":[]}"#).unwrap();
    let settle = Duration::from_secs(10);
    let mut source = PodSource::new(Source::File(one), "n1", settle, settle);
    source.read(look(), Freshness::Cached, |_| true).await;
    later(settle).await;
    assert!(matches!(
        source.read(look(), Freshness::Cached, |_| true).await.pods,
        Pods::Known(_)
    ));
    source.choose(Source::File(two), "a test".to_owned());
    assert_eq!(source.unsettled_for(), settle);
    assert_eq!(
        source.read(look(), Freshness::Cached, |_| true).await.pods,
        Pods::Unknown(PodsUnknown::Settling)
    );
}

fn auto(socket: &std::path::Path, token: Option<&std::path::Path>) -> Auto {
    let server = |token: &std::path::Path| {
        let url = "https://10.96.0.1:443".to_owned();
        ApiServer::new(url, Some(token.to_owned()), TlsConfig::default())
    };
    Auto {
        kubelet_sockets: vec!["/nowhere/kubelet.sock".into(), socket.to_owned()],
        api_server: token.map(|token| (server(token), "n1".to_owned())),
    }
}

#[tokio::test]
async fn auto_takes_the_socket_then_the_api_server_then_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (socket, token) = (dir.path().join("kubelet.sock"), dir.path().join("token"));
    let kind = async |auto: Auto| {
        let (source, why) = auto.choose(&BlockingPool::new(1)).await.unwrap();
        (source.kind(), why)
    };
    let (none, why) = kind(auto(&socket, None)).await;
    assert_eq!(none, PodSourceKind::None);
    assert!(why.contains("KUBERNETES_SERVICE_HOST"), "{why}");
    let (none, why) = kind(auto(&socket, Some(&token))).await;
    assert_eq!(none, PodSourceKind::None);
    assert!(why.contains("no token at"), "{why}");
    std::fs::write(&token, "x").unwrap();
    let (api_server, _) = kind(auto(&socket, Some(&token))).await;
    assert_eq!(api_server, PodSourceKind::ApiServer);
    // A regular file in the socket's place does not count.
    std::fs::write(&socket, "").unwrap();
    let (api_server, _) = kind(auto(&socket, Some(&token))).await;
    assert_eq!(api_server, PodSourceKind::ApiServer);
    std::fs::remove_file(&socket).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (kubelet_socket, why) = kind(auto(&socket, Some(&token))).await;
    assert_eq!(kubelet_socket, PodSourceKind::KubeletSocket);
    assert!(why.contains("is there"), "{why}");
}

#[tokio::test]
async fn a_file_older_than_the_runtimes_list_is_no_complete_list() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods.json");
    std::fs::write(&path, br#"{"items":[]}"#).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let mut source = PodSource::new(
        Source::File(path),
        "n1",
        Duration::ZERO,
        Duration::from_secs(10),
    );
    let mut read_written_at = async |written: Timestamp| {
        file.set_modified(written.into()).unwrap();
        source.read(look(), Freshness::Cached, |_| true).await.pods
    };
    let an_hour_ago = now() - SignedDuration::from_hours(1);
    let Pods::Known(list) = read_written_at(an_hour_ago).await else {
        panic!("a well-formed file, and no time to settle")
    };
    assert_eq!(list.as_of, Some(an_hour_ago));
    let ahead = read_written_at(now() + SignedDuration::from_hours(1)).await;
    let Pods::Unknown(PodsUnknown::Failed(why)) = ahead else {
        panic!("{ahead:?}")
    };
    assert!(why.contains("dated in the future"), "{why}");
}

#[tokio::test]
async fn a_file_grows_no_younger_when_the_clock_is_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods.json");
    std::fs::write(&path, br#"{"items":[]}"#).unwrap();
    let long = Duration::from_secs(10);
    let mut source = PodSource::new(Source::File(path), "n1", Duration::ZERO, long);
    let mut as_of = async |looked_at: Timestamp| {
        let answer = source
            .read(look_at(looked_at), Freshness::Cached, |_| true)
            .await;
        match answer.pods {
            Pods::Known(list) => list.as_of.unwrap(),
            unknown @ Pods::Unknown(_) => panic!("{unknown:?}"),
        }
    };
    as_of(now()).await;
    // Two minutes back: pods born since then are newer than the file, whatever its date.
    let set_back = now() - SignedDuration::from_mins(2);
    for minutes in [1, 2] {
        later(Duration::from_secs(60)).await;
        let looked_at = set_back + SignedDuration::from_mins(minutes);
        assert!(as_of(looked_at).await <= set_back, "{minutes}");
    }
}

#[tokio::test]
async fn a_file_is_no_older_for_a_look_that_takes_long() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods.json");
    std::fs::write(&path, br#"{"items":[]}"#).unwrap();
    let look = look();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(look.at.into()).unwrap();
    let long = Duration::from_secs(60);
    let mut source = PodSource::new(Source::File(path), "n1", Duration::ZERO, long);
    for _ in 0..2 {
        let answer = source.read(look, Freshness::Cached, |_| true).await;
        assert_eq!(answer.pods.known().unwrap().as_of, Some(look.at));
        // So long took the runtime's lists of the second look.
        later(Duration::from_secs(6)).await;
    }
}

#[tokio::test]
async fn a_quorum_answer_that_serves_again_is_no_younger_when_the_clock_is_set_back() {
    let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let list = r#"{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}"#;
    let app = axum::Router::new().fallback(async move || list);
    let server = tokio::spawn(async move { axum::serve(socket, app).await });
    let api_server = Source::ApiServer {
        server: ApiServer::new(url, None, TlsConfig::default()),
        node: "n1".to_owned(),
    };
    let long = Duration::from_secs(60);
    let mut source = PodSource::new(api_server, "n1", Duration::ZERO, long);
    let pass = Freshness::pass_begins();
    let first = source.read(look(), pass, |_| true).await;
    assert_eq!(first.pods.known().unwrap().as_of, None);
    later(Duration::from_secs(5)).await;
    let set_back = now() - SignedDuration::from_hours(1);
    let looked_at = set_back + SignedDuration::from_secs(5);
    let again = source.read(look_at(looked_at), pass, |_| true).await;
    assert!(again.is_repeated);
    let as_of = again.pods.known().unwrap().as_of.unwrap();
    assert!(as_of <= set_back, "{as_of} is after {set_back}");
    server.abort();
}

#[tokio::test]
async fn only_the_first_look_of_a_pass_waits_although_the_api_server_fails() {
    let url = "http://127.0.0.1:1".to_owned();
    let api_server = Source::ApiServer {
        server: ApiServer::new(url, None, TlsConfig::default()),
        node: "n1".to_owned(),
    };
    let long = Duration::from_secs(60);
    let mut source = PodSource::new(api_server, "n1", Duration::ZERO, long);
    for pass in [(); 2].map(|()| Freshness::pass_begins()) {
        assert!(source.brake(pass) > Duration::ZERO);
        let answer = source.read(look(), pass, |_| true).await;
        assert!(matches!(answer.pods, Pods::Unknown(_)), "{answer:?}");
        assert_eq!(source.brake(pass), Duration::ZERO);
    }
}

/// `auto` has chosen no source before the first look.
#[tokio::test]
async fn a_pass_whose_first_look_chooses_the_api_server_does_not_wait_before_the_second() {
    let url = "http://127.0.0.1:1".to_owned();
    let server = ApiServer::new(url, None, TlsConfig::default());
    let auto = Auto {
        kubelet_sockets: Vec::new(),
        api_server: Some((server, "n1".to_owned())),
    };
    let long = Duration::from_secs(60);
    let mut source = PodSource::new(Source::Auto(auto), "n1", Duration::ZERO, long);
    let pass = Freshness::pass_begins();
    assert_eq!(source.brake(pass), Duration::ZERO);
    let answer = source.read(look(), pass, |_| true).await;
    assert_eq!(answer.origin.source, PodSourceKind::ApiServer);
    assert_eq!(source.brake(pass), Duration::ZERO);
}

#[tokio::test]
async fn a_pipe_is_no_file_and_blocks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods.json");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut source = PodSource::new(
        Source::File(path),
        "n1",
        Duration::ZERO,
        Duration::from_secs(60),
    );
    let answer = source.read(look(), Freshness::Cached, |_| true).await.pods;
    let Pods::Unknown(PodsUnknown::Failed(why)) = answer else {
        panic!("{answer:?}")
    };
    assert!(why.contains("not a regular file"), "{why}");
}

#[tokio::test]
async fn an_answer_about_another_node_is_invalid_from_any_source() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pods.json");
    let pod = |uid: &str, node: &str| {
        format!(r#"{{"metadata":{{"uid":"{uid}"}},"spec":{{"nodeName":"{node}"}}}}"#)
    };
    let long = Duration::from_secs(60);
    let mut source = PodSource::new(Source::File(path.clone()), "n1", Duration::ZERO, long);
    let mut read = async |pods: [String; 2]| {
        std::fs::write(&path, format!(r#"{{"items":[{}]}}"#, pods.join(","))).unwrap();
        source.read(look(), Freshness::Cached, |_| true).await.pods
    };
    let here = read([pod("a", "n1"), pod("b", "")]).await;
    assert!(matches!(here, Pods::Known(_)), "{here:?}");
    let here = read([pod("a", "N1"), pod("b", "n1")]).await;
    assert!(matches!(here, Pods::Known(_)), "{here:?}");
    for other in ["n2", "n1.example.com"] {
        let there = read([pod("a", "n1"), pod("b", other)]).await;
        let Pods::Unknown(PodsUnknown::Failed(why)) = there else {
            panic!("{there:?}")
        };
        let advice = format!("items[1] is on \"{other}\", and this node is \"n1\"");
        assert!(
            why.contains(&advice) && why.contains("set node.name"),
            "{why}"
        );
    }
}
