//! Invalid answers, and servers that use the error texts of our own libraries.

use h2::Reason;
use http_body_util::BodyExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::http::HeaderMap;

use super::*;

/// Serves a router on a socket until the test ends. Returns the directory of the socket, and a client.
fn client_of(router: axum::Router) -> (TempDir, Client) {
    let (dir, settings) = place(PATIENCE);
    let listener = tokio::net::UnixListener::bind(&settings.endpoint).unwrap();
    let server = tonic::transport::Server::builder().add_routes(router.into());
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    (dir, Client::new(settings))
}

/// Answers every RPC with these bytes, then with this status and text; `None`: without a status.
fn raw(bytes: Vec<u8>, end: Option<[&'static str; 2]>) -> axum::Router {
    let answer = move || {
        let trailers = end.map(|[code, text]| {
            let mut trailers = HeaderMap::new();
            trailers.insert("grpc-status", code.parse().unwrap());
            trailers.insert("grpc-message", text.parse().unwrap());
            Ok(trailers)
        });
        let body = axum::body::Body::from(bytes).with_trailers(async move { trailers });
        let body = axum::body::Body::new(body);
        async { ([("content-type", "application/grpc")], body) }
    };
    axum::Router::new().fallback(answer)
}

#[tokio::test]
async fn a_servers_message_with_our_librarys_words_is_not_taken_for_a_local_error() {
    let refusals = [
        RpcStatus::internal("failed to decode Protobuf message: invalid varint"),
        RpcStatus::internal("protocol error: received message with invalid compression flag: 9"),
        RpcStatus::internal("Unexpected EOF decoding stream."),
        RpcStatus::internal("Missing response message."),
        // Our request was too long for it; this says nothing about its answer.
        RpcStatus::out_of_range(
            "Error, decoded message length too large: found 6012780 bytes, the limit is: 4194304 bytes",
        ),
    ];
    let rig = Rig::new(Options::default());
    let client = &rig.client;
    for refusal in refusals {
        let rpcs = [Rpc::Version, Rpc::ListImages, Rpc::RemoveContainer];
        rig.fail(&rpcs, &refusal);
        for error in [
            client.version().await.unwrap_err(),
            client.list_images().await.unwrap_err(),
            client
                .remove_container(&container_id("c0"))
                .await
                .unwrap_err(),
        ] {
            let is_theirs = matches!(&error, Error::Status { status, .. } if status.code() == refusal.code() && status.message() == refusal.message());
            assert!(is_theirs, "{error:?}");
        }
    }
}

/// One message with its head.
fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[flag][..], &length.to_be_bytes(), message].concat()
}

fn version_message() -> Vec<u8> {
    let version = cri::VersionResponse {
        runtime_name: "raw".into(),
        ..Default::default()
    };
    version.encode_to_vec()
}

async fn version_of(body: Vec<u8>, end: Option<[&'static str; 2]>) -> Result<Version, Error> {
    let (_dir, client) = client_of(raw(body, end));
    client.version().await
}

const WELL: Option<[&str; 2]> = Some(["0", ""]);

#[tokio::test]
async fn each_defect_of_an_answer_has_its_own_error() {
    let whole = framed(0, &version_message());
    assert_eq!(
        version_of(whole.clone(), WELL).await.unwrap().runtime,
        "raw"
    );
    let cases = [
        (whole[..whole.len() - 1].to_vec(), WELL, Defect::CutOff),
        (whole[..3].to_vec(), WELL, Defect::CutOff),
        (whole[..3].to_vec(), None, Defect::CutOff),
        (whole.clone(), None, Defect::NoStatus),
        (Vec::new(), WELL, Defect::Empty),
        (framed(1, &version_message()), WELL, Defect::Flag(1)),
        (b"hello".to_vec(), WELL, Defect::Flag(b'h')),
    ];
    for (body, end, expected) in cases {
        let error = version_of(body, end).await.unwrap_err();
        let is_it = matches!(&error, Error::Malformed { defect, .. } if *defect == expected);
        assert!(is_it, "{expected:?}: {error:?}");
    }
    let error = version_of(framed(0, &[0xff; 12]), WELL).await.unwrap_err();
    let is_it = matches!(
        &error,
        Error::Malformed {
            defect: Defect::Unreadable(_),
            ..
        }
    );
    assert!(is_it, "{error:?}");
}

#[tokio::test]
async fn the_servers_status_counts_before_a_defect_we_found() {
    let whole = framed(0, &version_message());
    for length in [0, 3, whole.len() - 1, whole.len()] {
        let refused = Some(["7", "not you"]);
        let error = version_of(whole[..length].to_vec(), refused).await;
        let error = error.unwrap_err();
        assert_eq!(error.label(), "status", "{length}: {error:?}");
    }
}

#[tokio::test]
async fn a_stream_that_ends_without_a_status_is_an_error_and_not_a_list() {
    let page = framed(0, &list_of(vec![container("a", "s")]));
    for body in [Vec::new(), page] {
        let (_dir, client) = client_of(raw(body, None));
        let list = client.list_containers().await;
        assert!(list.is_err(), "{list:?}");
    }
}

#[tokio::test]
async fn a_peer_that_does_not_speak_grpc_is_an_error() {
    let router = axum::Router::new().fallback(|| async { "hello" });
    let (_dir, client) = client_of(router);
    assert!(client.version().await.is_err());
    assert!(client.list_containers().await.is_err());
}

#[tokio::test]
async fn any_answer_over_our_limit_names_both_sizes() {
    let rig = Rig::new(Options::default());
    let client = rig.client_with(|settings| settings.max_message_bytes = 1);
    for error in [
        client.version().await.unwrap_err(),
        client.list_images().await.unwrap_err(),
        client.image_fs_info().await.unwrap_err(),
    ] {
        let is_it = matches!(
            error,
            Error::TooLarge {
                bytes: 2..,
                limit: 1,
                ..
            }
        );
        assert!(is_it, "{error:?}");
    }
}

#[tokio::test]
async fn a_deadline_that_the_library_sees_pass_first_is_a_timeout() {
    let (_dir, settings) = place(PATIENCE);
    let path = settings.endpoint.clone();
    // It takes connections into its backlog and never reads.
    let _silent = UnixListener::bind(&path).unwrap();
    let client = Client::new(settings);
    let after = Duration::from_millis(50);
    let mut rpc = client.runtime_rpc();
    let call = rpc.version(request(cri::VersionRequest::default(), after));
    let status = call.await.unwrap_err();
    let error = Error::from_status("Version", &path.as_path().into(), after, status);
    assert_eq!(error.to_string(), "Version: no answer within 50ms");
}

/// Breaks each call off with this reason, on one connection. Returns the directory of the socket, and a client.
fn client_of_breaker(reason: Reason) -> (TempDir, Client) {
    let (dir, settings) = place(PATIENCE);
    let listener = tokio::net::UnixListener::bind(&settings.endpoint).unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut calls = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_, mut answer))) = calls.accept().await {
            answer.send_reset(reason);
        }
    });
    (dir, Client::new(settings))
}

/// A server of gRPC in Go breaks a call off where its status is longer than the client takes.
#[tokio::test]
async fn a_call_that_the_runtime_breaks_off_is_no_lost_runtime() {
    let (_dir, client) = client_of_breaker(Reason::INTERNAL_ERROR);
    for _ in 0..2 {
        let error = client.remove_container(&container_id("c0")).await;
        let error = error.unwrap_err();
        assert_eq!(
            (error.label(), error.is_lost(), error.class()),
            ("malformed", false, FailureClass::Other),
            "{error}"
        );
        let said = "RemoveContainer: answer not understood: it was broken off: ";
        assert!(error.to_string().starts_with(said), "{error}");
    }
    assert_eq!(client.runtime().connection(), 1, "the connection lives");
    let (_dir, client) = client_of_breaker(Reason::REFUSED_STREAM);
    let error = client.version().await.unwrap_err();
    assert!(error.is_lost(), "it was not begun: {error}");
}

/// A server of gRPC in Go breaks a call off when the deadline that came with it passes, often before our timer ends.
#[tokio::test]
async fn a_call_that_the_runtime_breaks_off_at_the_deadline_is_a_timeout() {
    let (_dir, client) = client_of_breaker(Reason::CANCEL);
    let mut rpc = client.runtime_rpc();
    let after = Duration::from_millis(300);
    let call = async move {
        let answer = rpc.version(cri::VersionRequest::default()).await;
        // Not the asynchronous sleep: the call must end first, and late.
        std::thread::sleep(after);
        answer
    };
    let error = client.runtime().call("Version", after, call).await;
    let error = error.unwrap_err();
    assert_eq!(error.to_string(), "Version: no answer within 300ms");
    assert!(client.version().await.unwrap_err().label() == "malformed");
}

#[tokio::test]
async fn an_error_with_a_long_text_is_the_runtimes_own_and_is_cut() {
    let rig = Rig::new(Options::default());
    let text = "failed to destroy network: \"\n".to_owned() + &"x".repeat(100_000);
    rig.fail(&[Rpc::RemovePodSandbox], &RpcStatus::unknown(text));
    let sandbox = rig.sandbox("default/old-0#0");
    let error = rig.client.remove_pod_sandbox(&sandbox).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::NetworkTeardown, "{error}");
    assert!(error.to_string().len() < 2_000);
}
