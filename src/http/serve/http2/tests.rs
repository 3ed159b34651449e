use axum::Router;
use axum::extract::State as Shared;
use axum::routing::get;
use h2::client::{ResponseFuture, SendRequest};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;
use tokio_util::io::ReaderStream;

use super::super::super::places::RequestPlaces;
use super::super::{Connections, LINGER};
use super::*;
use crate::access::{self, Access};

const BIG: usize = 100 << 10;

/// Answers with more than a window, or never.
struct Server {
    serving: JoinHandle<()>,
    shutdown: CancellationToken,
    places: RequestPlaces,
    began: Instant,
}

async fn hold(
    Shared(places): Shared<RequestPlaces>,
    exchange: axum::Extension<Exchange>,
) -> Vec<u8> {
    exchange.hold(places.take().unwrap());
    vec![b'x'; BIG]
}

async fn wait(Shared(places): Shared<RequestPlaces>) {
    let _place = places.take().unwrap();
    std::future::pending::<()>().await;
}

async fn stream() -> Body {
    Body::from_stream(ReaderStream::new(&b"of unknown length"[..]))
}

/// Waits until nothing else can go on. No clock is waited for: time is paused, and goes on only then.
async fn others_ran() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// Stops the clock, which would count the time of the disk.
async fn access() -> access::Current {
    let access = Access::new(&access::Config::default(), None).await.unwrap();
    tokio::time::pause();
    access::Current::new(access)
}

impl Server {
    fn start(access: &access::Current) -> (Self, DuplexStream) {
        let places = RequestPlaces::new(10);
        let router = Router::new()
            .route("/big", get(hold))
            .route("/wait", get(wait))
            .route("/stream", get(stream))
            .with_state(places.clone());
        let shutdown = CancellationToken::new();
        let serving = Serving {
            router,
            connection: Connections::default().take(),
            shutdown: shutdown.clone(),
            access: access.clone(),
            began: Instant::now(),
            refusals: Arc::new(crate::telemetry::LineLimit::new(1, STALL_MAX)),
        };
        let peer = (
            "127.0.0.1:1".parse().unwrap(),
            "127.0.0.1:2".parse().unwrap(),
        );
        let (server, client) = tokio::io::duplex(1 << 20);
        let serving = tokio::spawn(serve(serving, server, Peer::tcp(peer.0, peer.1), None));
        let began = Instant::now();
        let server = Self {
            serving,
            shutdown,
            places,
            began,
        };
        (server, client)
    }

    /// Waits until the connection is closed, which gives all places back. Returns how long it was open.
    async fn closed(self) -> Duration {
        tokio::time::timeout(Duration::from_secs(600), self.serving)
            .await
            .unwrap()
            .unwrap();
        let open = self.began.elapsed();
        others_ran().await;
        assert_eq!(self.places.free(), 10, "a place is still held");
        open
    }
}

async fn client(stream: DuplexStream, window: u32) -> (SendRequest<Bytes>, JoinHandle<()>) {
    let mut builder = h2::client::Builder::new();
    builder.initial_window_size(window);
    let (client, connection) = builder.handshake(stream).await.unwrap();
    (client, tokio::spawn(async { drop(connection.await) }))
}

async fn ask(client: &SendRequest<Bytes>, method: Method, path: &str) -> ResponseFuture {
    let uri = format!("https://localhost{path}");
    let request = Request::builder().method(method).uri(uri).body(()).unwrap();
    let mut client = client.clone().ready().await.unwrap();
    client.send_request(request, true).unwrap().0
}

fn is_about(open: Duration, expected: Duration) -> bool {
    open >= expected && open <= expected + 3 * CHECK_EVERY
}

#[tokio::test]
async fn a_client_that_closes_its_window_is_dropped_with_its_answer() {
    let access = access().await;
    for window in [0, 1, 20_000] {
        let (server, stream) = Server::start(&access);
        let (client, _driver) = client(stream, window).await;
        let answer = ask(&client, Method::GET, "/big").await.await.unwrap();
        assert_eq!(answer.status(), 200);
        // Other requests of the connection keep nothing alive.
        let _waiting = ask(&client, Method::GET, "/wait").await;
        tokio::time::sleep(STALL_MAX / 2).await;
        assert_eq!(server.places.free(), 8);
        let open = server.closed().await;
        assert!(is_about(open, STALL_MAX), "window {window}: {open:?}");
        drop(answer);
    }
}

#[tokio::test]
async fn a_client_that_reads_slowly_gets_the_whole_answer() {
    let access = access().await;
    let (server, stream) = Server::start(&access);
    let (client, _driver) = client(stream, 17 << 10).await;
    let answer = ask(&client, Method::GET, "/big").await.await.unwrap();
    let mut body = answer.into_body();
    let mut read = 0;
    while let Some(piece) = body.data().await {
        let length = u32::try_from(piece.unwrap().len()).unwrap();
        read += length as usize;
        // A third of the bound for each piece, whatever the frames.
        tokio::time::sleep(STALL_MAX * length / (3 << 14)).await;
        body.flow_control()
            .release_capacity(length as usize)
            .unwrap();
    }
    assert_eq!(read, BIG);
    assert!(
        server.began.elapsed() > STALL_MAX,
        "{:?}",
        server.began.elapsed()
    );
    assert_eq!(
        server.places.free(),
        10,
        "its place is free once all is sent"
    );
}

#[tokio::test]
async fn a_connection_without_a_request_ends() {
    let access = access().await;
    let (server, stream) = Server::start(&access);
    let open = server.closed().await;
    assert!(is_about(open, HEAD_TIMEOUT), "no preface: {open:?}");
    drop(stream);

    let (server, mut stream) = Server::start(&access);
    // The preface, its settings, and half the head of a frame; the client never reads.
    let begun = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x20";
    stream.write_all(begun).await.unwrap();
    let open = server.closed().await;
    assert!(
        is_about(open, HEAD_TIMEOUT + DRAIN),
        "half a frame: {open:?}"
    );

    let (server, stream) = Server::start(&access);
    let (client, driver) = client(stream, 65_535).await;
    let answer = ask(&client, Method::GET, "/nowhere").await.await.unwrap();
    assert_eq!(answer.status(), 404);
    drop(answer);
    let open = server.closed().await;
    assert!(is_about(open, HEAD_TIMEOUT), "kept alive: {open:?}");
    driver.await.unwrap();
}

#[tokio::test]
async fn a_client_that_vanished_loses_its_place() {
    let access = access().await;
    let (server, stream) = Server::start(&access);
    let (client, driver) = client(stream, 65_535).await;
    let _waiting = ask(&client, Method::GET, "/wait").await;
    others_ran().await;
    assert_eq!(server.places.free(), 9);
    // The connection stays open, and the client answers no pings.
    let frozen = {
        driver.abort();
        client
    };
    let open = server.closed().await;
    assert!(open <= 3 * PING_EVERY, "{open:?}");
    drop(frozen);
}

#[tokio::test]
async fn at_most_eight_requests_are_answered_at_a_time() {
    let access = access().await;
    let (server, stream) = Server::start(&access);
    let (client, _driver) = client(stream, 65_535).await;
    let mut waiting = Vec::new();
    for _ in 0..STREAMS_MAX {
        waiting.push(ask(&client, Method::GET, "/wait").await);
    }
    others_ran().await;
    let ninth = ask(&client, Method::GET, "/wait").await;
    others_ran().await;
    assert_eq!(server.places.free(), 2);
    drop(waiting);
    others_ran().await;
    assert_eq!(server.places.free(), 9, "the ninth is asked");
    drop(ninth);
}

#[tokio::test]
async fn a_shutdown_answers_what_is_open_and_takes_nothing_new() {
    let access = access().await;
    let (server, stream) = Server::start(&access);
    let (client, _driver) = client(stream, 65_535).await;
    let answer = ask(&client, Method::GET, "/big").await.await.unwrap();
    server.shutdown.cancel();
    others_ran().await;
    assert!(client.clone().ready().await.is_err(), "it was told to go");
    let mut body = answer.into_body();
    let mut read = 0;
    while let Some(piece) = body.data().await {
        read += piece.as_ref().unwrap().len();
        let length = piece.unwrap().len();
        body.flow_control().release_capacity(length).unwrap();
    }
    assert_eq!(read, BIG);
    drop(body);
    let open = server.closed().await;
    assert!(open < STALL_MAX, "{open:?}");
}

#[tokio::test]
async fn an_answer_to_head_has_the_length_and_no_body() {
    let access = access().await;
    let (_server, stream) = Server::start(&access);
    let (client, _driver) = client(stream, 65_535).await;
    let answer = ask(&client, Method::HEAD, "/big").await.await.unwrap();
    assert_eq!(answer.headers()["content-length"], BIG.to_string().as_str());
    assert!(!answer.headers().contains_key("connection"));
    assert!(answer.into_body().is_end_stream());
    // The length of what is written while it is sent is not known.
    let answer = ask(&client, Method::HEAD, "/stream").await.await.unwrap();
    assert_eq!(answer.headers().get("content-length"), None);
    assert!(answer.into_body().is_end_stream());
}

/// A few hundred bytes of HPACK can name a thousand fields.
#[tokio::test]
async fn a_request_has_at_most_a_hundred_fields() {
    let access = access().await;
    let (_server, stream) = Server::start(&access);
    let (client, _driver) = client(stream, 65_535).await;
    for (fields, status) in [(FIELDS_MAX, 200), (FIELDS_MAX + 1, 431)] {
        let mut request = Request::builder().uri("https://localhost/big");
        for number in 0..fields {
            request = request.header(format!("x-{number}"), "1");
        }
        let mut client = client.clone().ready().await.unwrap();
        let answer = client.send_request(request.body(()).unwrap(), true);
        assert_eq!(answer.unwrap().0.await.unwrap().status(), status);
    }
}

#[tokio::test]
async fn the_rest_of_a_request_is_read_for_a_while() {
    let access = access().await;
    let (server, stream) = Server::start(&access);
    let (client, _driver) = client(stream, 65_535).await;
    let request = Request::post("https://localhost/nowhere").body(()).unwrap();
    let mut client = client.ready().await.unwrap();
    let (answer, mut upload) = client.send_request(request, false).unwrap();
    assert_eq!(answer.await.unwrap().status(), 404);
    upload
        .send_data(Bytes::from(vec![0; 60 << 10]), false)
        .unwrap();
    let reset = std::future::poll_fn(|cx| upload.poll_reset(cx));
    let reason = tokio::time::timeout(2 * LINGER, reset)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(reason, h2::Reason::NO_ERROR);
    assert!(
        server.began.elapsed() >= LINGER,
        "{:?}",
        server.began.elapsed()
    );
}
