//! Requests as bytes: near valid ones, and garbage.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::super::{Edit, edited, edits};
use crate::alerts::hook::{asks, call};

/// Part of every token and of the wrong password: no log line may contain it.
pub(super) const MARK: &str = "Fuzzed7oken";
/// A body that is a whole request.
const EMBEDDED: &str = "POST /gc HTTP/1.1\r\nhost: localhost\r\n\r\n";
const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\0",
    " ",
    ":",
    "\r\n\r\n",
    "0\r\n\r\n",
    "HTTP/1.1",
    "GET / ",
    "host: a\r\n",
    "content-length: 5\r\n",
    "transfer-encoding: chunked\r\n",
    "{",
    "]",
    "\"",
    "null",
];

/// The values of `Authorization` that are valid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Credentials {
    pub(super) read: &'static str,
    pub(super) act: &'static str,
}

/// Whose credential a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Stranger,
    Reader,
    /// Asks for dry runs only, so that a removal is never its own.
    Actor,
}

/// What the client does once the bytes are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It reads as many answers as there are requests and keeps the connection.
    Keep,
    /// It closes its half, and reads to the end.
    HalfClose,
    /// It closes without reading.
    Close,
    /// It stays silent: the service must close the connection.
    Silence,
}

/// One request, or some on one connection.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    /// Whether each request is `HEAD`, whose answer has no body.
    pub(super) heads: Vec<bool>,
    /// It carries a valid credential.
    pub(super) may_read: bool,
    pub(super) ending: Ending,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    Length,
    Chunked,
    None,
    Both,
    Longer,
    Shorter,
    TwoLengths,
    Header(&'static str),
}

#[derive(Clone, Debug)]
struct Request {
    sender: Sender,
    method: String,
    target: String,
    version: &'static str,
    headers: Vec<u8>,
    framing: Framing,
    body: Vec<u8>,
}

impl Request {
    /// The server finds its end.
    fn is_sound(&self) -> bool {
        match self.framing {
            Framing::Length | Framing::Chunked => true,
            Framing::None => self.body.is_empty(),
            Framing::Both
            | Framing::Longer
            | Framing::Shorter
            | Framing::TwoLengths
            | Framing::Header(_) => false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let line = format!("{} {} {}\r\n", self.method, self.target, self.version);
        let mut bytes = line.into_bytes();
        bytes.extend(&self.headers);
        let length = self.body.len();
        let of = |length: usize| format!("Content-Length: {length}\r\n");
        let chunked = "Transfer-Encoding: chunked\r\n".to_owned();
        let framing = match self.framing {
            Framing::Length => of(length),
            Framing::Chunked => chunked,
            Framing::None => String::new(),
            Framing::Both => of(length / 2) + &chunked,
            Framing::Longer => of(length + 7),
            Framing::Shorter => of(length / 2),
            Framing::TwoLengths => of(length) + &of(length + 1),
            Framing::Header(text) => format!("{text}\r\n"),
        };
        bytes.extend(framing.as_bytes());
        bytes.extend(b"\r\n");
        match self.framing {
            Framing::Chunked | Framing::Both => {
                for chunk in self.body.chunks(self.body.len() / 3 + 1) {
                    bytes.extend(format!("{:x};a=b\r\n", chunk.len()).as_bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\nx-trailer: 1\r\n\r\n");
            }
            Framing::Length
            | Framing::None
            | Framing::Longer
            | Framing::Shorter
            | Framing::TwoLengths
            | Framing::Header(_) => bytes.extend(&self.body),
        }
        bytes
    }
}

fn text(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(words).prop_map(str::to_owned)
}

fn methods() -> impl Strategy<Value = String> {
    let odd = [
        "get", "Post", "PRI", "M-SEARCH", "BREW", "G\u{e9}T", "", "GET ", "a\tb",
    ];
    prop_oneof![
        6 => text(&["GET", "POST"]),
        3 => text(&["HEAD", "DELETE", "PUT", "PATCH", "OPTIONS", "TRACE", "CONNECT"]),
        1 => select(odd.to_vec()).prop_map(str::to_owned),
        1 => (1..400_usize).prop_map(|length| "M".repeat(length)),
    ]
}

fn queries() -> impl Strategy<Value = String> {
    let keys = text(&[
        "target",
        "target",
        "dry_run",
        "force",
        "follow",
        "max_removals",
        "assume_finished_after",
        "max_dead",
        "wait",
        "plan",
        "limit",
        "",
        "a[]",
        "%00",
        "%",
        "\u{e9}",
    ]);
    let values = text(&[
        "containers",
        "sandboxes",
        "images",
        "logs",
        "all",
        "true",
        "false",
        "0",
        "1",
        "-1",
        "1e9",
        "99999999999999999999999",
        "10ms",
        "1h",
        "",
        "%ff",
        "%2",
        "a=b",
        "+",
    ]);
    let token = Just(format!("access_token={MARK}-act"));
    let pair = prop_oneof![
        8 => (keys, values).prop_map(|(key, value)| format!("{key}={value}")),
        1 => token,
        1 => text(&["target", "&", "=", "?", "#", "target=containers;dry_run=true"]),
    ];
    prop_oneof![
        3 => Just(String::new()),
        5 => prop::collection::vec(pair.clone(), 1..4).prop_map(|pairs| format!("?{}", pairs.join("&"))),
        1 => (pair, 1..300_usize).prop_map(|(pair, times)| format!("?{}", format!("{pair}&").repeat(times))),
    ]
}

/// A method and a target.
fn targets() -> impl Strategy<Value = (String, String)> {
    let routes: Vec<(String, &str)> = crisweep::http::routes()
        .into_iter()
        .map(|it| (it.method.to_string(), it.path))
        .collect();
    let ids = prop_oneof![
        9 => text(&["none", "1", "0", "web", "..", "%2e%2e%2fgc", "%00", "%ff", "a/b", "%", "a b"]),
        1 => (1..9_000_usize).prop_map(|length| "0".repeat(length)),
    ];
    let known = (select(routes), ids)
        .prop_map(|((method, path), id)| (method, path.replace("{id}", &id).replace("{*id}", &id)));
    let before = prop_oneof![
        12 => Just(""),
        1 => select(vec![
            "http://localhost", "http://evil.example", "https://a:b@localhost:1", "http:", "/", "/x/..", "/.",
        ]),
    ];
    let after = prop_oneof![
        12 => Just(""),
        1 => select(vec!["/", "//", "%20", ";x", "/../gc", "#f", "/%2e%2e/gc", "\u{e9}", "%"]),
    ];
    let of_route = (known, before, after, queries()).prop_map(|(known, before, after, query)| {
        let (method, path) = known;
        (method, format!("{before}{path}{after}{query}"))
    });
    let unknown = text(&[
        "*",
        "",
        "/..",
        "//",
        "/-/",
        "/gc/../gc",
        "/GC",
        "/%67c",
        "localhost:80",
        "gc",
        "/api/v1/",
        "/api/v1/passes/",
        "/\0",
    ]);
    let long = (1..40_000_usize).prop_map(|length| format!("/{}", "a".repeat(length)));
    prop_oneof![
        12 => (of_route, prop::option::weighted(0.3, methods()))
            .prop_map(|((method, target), other)| (other.unwrap_or(method), target)),
        2 => (methods(), unknown),
        1 => (methods(), long),
    ]
}

fn line(name: &str, value: &[u8]) -> Vec<u8> {
    [name.as_bytes(), b": ", value, b"\r\n"].concat()
}

fn hosts() -> impl Strategy<Value = Vec<u8>> {
    let host = |value: &str| line("Host", value.as_bytes());
    prop_oneof![
        12 => Just(host("localhost")),
        1 => select(vec!["127.0.0.1:20950", "[::1]", "node-1", "evil.example", "", "a:b:c", "[", "localhost:"])
            .prop_map(host),
        1 => select(vec![
            Vec::new(),
            [host("localhost"), host("evil.example")].concat(),
            line("Host", b"local\xffhost"),
            b"Host : localhost\r\n".to_vec(),
        ]),
    ]
}

/// Headers without a right credential in its place. `act` is the right one; empty if none is configured.
fn wrong_credentials(act: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let one = |value: Vec<u8>| line("Authorization", &value);
    let basic = |text: &[u8]| format!("Basic {}", STANDARD.encode(text)).into_bytes();
    let secret = act.split(' ').nth(1).unwrap_or_default();
    let fixed = vec![
        one(format!("Bearer {MARK}").into_bytes()),
        one(format!("bearer   {MARK}").into_bytes()),
        one(b"Bearer".to_vec()),
        one(b"Bearer ".to_vec()),
        one(b"Basic".to_vec()),
        one(format!("Basic {MARK}%%%").into_bytes()),
        one(basic(b"no colon")),
        one(basic(b":")),
        one(basic(b"\xff\xfe:\0")),
        one(basic(format!("ann:{MARK}").as_bytes())),
        one(basic(b"ann:secret ")),
        one(basic(b"Ann:secret")),
        one(format!("Digest username=\"ann\", nonce=\"{MARK}\"").into_bytes()),
        one(format!("Bearer {MARK}\u{e9}").into_bytes()),
        one(format!("Token {secret}").into_bytes()),
        one(format!("{act}x").into_bytes()),
        one(act
            .strip_suffix(char::is_alphanumeric)
            .unwrap_or("Bearer x")
            .into()),
        one(format!("{act}, {act}").into_bytes()),
        [one(act.into()), one(act.into())].concat(),
        [one(b"Bearer a".to_vec()), one(act.into())].concat(),
        line("X-Authorization", act.as_bytes()),
        line("Proxy-Authorization", act.as_bytes()),
        line(
            "Cookie",
            format!("token={secret}; Authorization={act}").as_bytes(),
        ),
    ];
    prop_oneof![
        4 => Just(Vec::new()),
        6 => select(fixed),
        1 => (1..3_000_usize).prop_map(move |times| one(format!("Bearer {}", MARK.repeat(times)).into())),
        1 => prop::collection::vec(0x20..=0xff_u8, 0..40).prop_map(one),
        1 => any::<u64>().prop_map(move |number| one(basic(format!("ann:{MARK}{number}").as_bytes()))),
    ]
}

fn extras() -> impl Strategy<Value = Vec<u8>> {
    let fixed = select(vec![
        ("Origin", "http://localhost"),
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", ""),
        ("Sec-Fetch-Site", "same-origin"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Site", "\u{e9}"),
        (
            "Accept",
            "application/openmetrics-text;version=1.0.0;q=99999,*/*",
        ),
        ("Accept", ",,;;q="),
        ("X-Prometheus-Scrape-Timeout-Seconds", "-1"),
        ("X-Prometheus-Scrape-Timeout-Seconds", "1e308"),
        ("X-Prometheus-Scrape-Timeout-Seconds", "NaN"),
        ("X-Prometheus-Scrape-Timeout-Seconds", "0.001"),
        ("Expect", "100-continue"),
        ("Expect", "200-ok"),
        ("Connection", "close"),
        ("Connection", "authorization, host"),
        ("Connection", "upgrade"),
        ("Upgrade", "h2c"),
        ("Content-Type", "application/json; charset=\u{e9}"),
        ("Content-Encoding", "gzip"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("X-HTTP-Method-Override", "POST"),
        ("X-Original-URL", "/gc"),
        ("Range", "bytes=0-"),
        ("Accept-Encoding", "gzip"),
        ("Bad Name", "a"),
        ("", "a"),
        ("Folded", "a\r\n b"),
    ]);
    let fixed = fixed.prop_map(|(name, value)| line(name, value.as_bytes()));
    let noise = prop::collection::vec(any::<u8>(), 0..60).prop_map(|mut value| {
        value.retain(|byte| !b"\r\n".contains(byte));
        line("X-Noise", &value)
    });
    let some = prop_oneof![8 => fixed, 1 => noise];
    prop_oneof![
        10 => prop::collection::vec(some, 0..4).prop_map(|lines| lines.concat()),
        1 => (90..130_usize).prop_map(|count| b"X-Many: 1\r\n".repeat(count)),
        1 => (1..40_000_usize).prop_map(|length| line("X-Long", &b"a".repeat(length))),
    ]
}

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let webhook = || {
        call(vec![asks("all"), asks("images")])
            .to_string()
            .into_bytes()
    };
    let gc = json!({ "target": ["containers", "images"], "dry_run": true, "max_removals": 3, "wait": "10ms" });
    let gc = gc.to_string().into_bytes();
    let open = select(vec![
        "[",
        "{\"a\":",
        "{\"target\":[",
        "{\"version\":\"4\",\"alerts\":[",
    ]);
    prop_oneof![
        20 => Just(Vec::new()),
        8 => edits(WORDS).prop_map(move |edits| edited(webhook(), &edits)),
        8 => edits(WORDS).prop_map(move |edits| edited(gc.clone(), &edits)),
        4 => (open, 1..2_000_usize).prop_map(|(open, depth)| open.repeat(depth).into_bytes()),
        4 => prop::collection::vec(any::<u8>(), 0..200),
        4 => Just(EMBEDDED.as_bytes().to_vec()),
        1 => (60_000..70_000_usize).prop_map(|length| vec![b' '; length]),
    ]
}

fn framings() -> impl Strategy<Value = Framing> {
    prop_oneof![
        24 => Just(Framing::Length),
        8 => Just(Framing::Chunked),
        8 => Just(Framing::None),
        5 => select(vec![
            Framing::Both,
            Framing::Longer,
            Framing::Shorter,
            Framing::TwoLengths,
            Framing::Header("Content-Length: -1"),
            Framing::Header("Content-Length: 18446744073709551616"),
            Framing::Header("Content-Length: 1048577"),
            Framing::Header("Content-Length: 9223372036854775807"),
            Framing::Header("Content-Length: 0x5"),
            Framing::Header("Content-Length: 3, 3"),
            Framing::Header("Transfer-Encoding: gzip, chunked"),
            Framing::Header("Transfer-Encoding: chunked, gzip"),
            Framing::Header("Transfer-Encoding: \tchunked"),
            Framing::Header("Transfer-Encoding : chunked"),
            Framing::Header("Transfer-Encoding: chunked\r\nTransfer-Encoding: identity"),
        ]),
    ]
}

fn versions() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        20 => Just("HTTP/1.1"),
        2 => Just("HTTP/1.0"),
        1 => select(vec!["HTTP/2.0", "HTTP/0.9", "HTTP/1.10", "http/1.1", "", "HTTP/1.1 "]),
    ]
}

fn requests(credentials: Option<Credentials>) -> impl Strategy<Value = Request> {
    let (read, act) = credentials.map_or(("", ""), |it| (it.read, it.act));
    let wrong = wrong_credentials(act);
    let sender = select(match credentials {
        Some(_) => [
            [Sender::Stranger; 18].as_slice(),
            &[Sender::Reader, Sender::Actor],
        ]
        .concat(),
        None => vec![Sender::Stranger],
    });
    let head = (targets(), versions(), hosts(), wrong, extras());
    (sender, head, framings(), bodies()).prop_map(move |(sender, head, framing, body)| {
        let ((mut method, mut target), version, host, wrong, extra) = head;
        let credential = match sender {
            Sender::Stranger => wrong,
            Sender::Reader => line("Authorization", read.as_bytes()),
            Sender::Actor => {
                method = "POST".into();
                target = "/gc?dry_run=true".into();
                line("Authorization", act.as_bytes())
            }
        };
        let headers = [host, credential, extra].concat();
        Request {
            sender,
            method,
            target,
            version,
            headers,
            framing,
            body,
        }
    })
}

/// Joins requests. Bytes with a right credential stay as they are: changed, they could use it rightly.
fn joined(requests: &[Request], edits: &[Edit], act: &str, ending: Ending) -> Input {
    let mut bytes: Vec<u8> = requests.iter().flat_map(Request::bytes).collect();
    let secret = act.split(' ').nth(1).unwrap_or(" ").as_bytes();
    let is_known = bytes.windows(secret.len()).any(|part| part == secret);
    let is_changed = !edits.is_empty() && (act.is_empty() || !is_known);
    if is_changed {
        bytes = edited(bytes, edits);
    }
    let is_sound = !is_changed && requests.iter().all(Request::is_sound);
    Input {
        bytes,
        heads: requests.iter().map(|it| it.method == "HEAD").collect(),
        may_read: requests.iter().any(|it| it.sender != Sender::Stranger),
        ending: match ending {
            Ending::Keep if !is_sound => Ending::HalfClose,
            Ending::Keep | Ending::HalfClose | Ending::Close | Ending::Silence => ending,
        },
    }
}

/// All that is sent.
pub(super) fn inputs(credentials: Option<Credentials>) -> impl Strategy<Value = Input> {
    let act = credentials.map_or("", |it| it.act);
    let few = prop_oneof![
        4 => prop::collection::vec(requests(credentials), 1..2),
        1 => prop::collection::vec(requests(credentials), 2..6),
    ];
    let changes = prop_oneof![5 => Just(Vec::new()), 1 => edits(WORDS)];
    let ending = prop_oneof![
        400 => Just(Ending::Keep),
        20 => Just(Ending::HalfClose),
        20 => Just(Ending::Close),
        1 => Just(Ending::Silence),
    ];
    let noise = prop::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Input {
        bytes,
        heads: vec![],
        may_read: false,
        ending: Ending::HalfClose,
    });
    prop_oneof![
        30 => (few, changes, ending).prop_map(|(few, changes, ending)| joined(&few, &changes, act, ending)),
        1 => noise,
    ]
}
