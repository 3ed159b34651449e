use proptest::prelude::*;

use super::*;

/// Texts, each with what is left of it. Secrets are put together here, so that no scanner takes them for real ones.
fn shapes() -> Vec<(String, String)> {
    let stars = |n: usize| "*".repeat(n);
    let a = |n: usize| "a1B".chars().cycle().take(n).collect::<String>();
    let upper = |n: usize| "A7Z".chars().cycle().take(n).collect::<String>();
    let mut rows = Vec::new();
    let mut row = |before: &str, secret: String, after: &str| {
        let wanted = format!("{before}{}{after}", stars(secret.len()));
        rows.push((format!("{before}{secret}{after}"), wanted));
    };
    row("id=AKIA", upper(16), " x");
    row("ASIA", upper(16), "");
    for prefix in [
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "xoxb-",
        "xapp-",
        "npm_",
        "sk_live_",
    ] {
        row(&format!("({prefix}"), a(36), ") x");
    }
    row("key AIza", a(35), " x");
    row("jwt eyJ", format!("{}.eyJ{}.{}", a(8), a(9), a(10)), ", x");
    row("eyJ", format!("{}.eyJ{}.", a(8), a(9)), "");
    row("> Bearer ", a(16), " x");
    row("bearer ", format!("{}==", a(20)), "\nx");
    row("password=", "hunter2".into(), " x=1");
    row("DB_PASSWORD=", "p".into(), "");
    row(
        "Password : ",
        "a'b".split('\'').next().unwrap().into(),
        "'b",
    );
    row("{\"password\":\"", "a b,c".into(), "\",\"x\":1}");
    row(r#"{\"token\":\""#, "a b".into(), r#"\",\"x\":1}"#);
    row("secretKey: '", "x y".into(), "' z");
    row("--api-key=", "x".into(), " z");
    row("api_key: ", "x".into(), ", z");
    row("AWS_SECRET_ACCESS_KEY=", "a/b+c".into(), "\nz");
    row("?access_token=", "abc".into(), "&x=1");
    row("Authorization: ", "Token abc, x=1".into(), "\nx");
    row("-H 'Cookie: ", "a=b; c=d".into(), "' x");
    row("postgres://app:", "p:@w".into(), "@db/x");
    row("https://", a(4), "@github/x");
    row(
        "-----BEGIN RSA PRIVATE KEY-----",
        a(40),
        "-----END RSA PRIVATE KEY-----",
    );
    rows
}

/// Texts that look like a secret to nobody.
const PLAIN: [&str; 18] = [
    "AKIA",
    "AKIAshort",
    "xAKIAA7ZA7ZA7ZA7ZA7ZA",
    "ghp_short",
    "eyJ.x",
    "eyJhbGciOi.x y.z",
    "Bearer of news",
    "basic auth failed",
    "token expired",
    "the password is wrong",
    "passwords differ",
    "secret",
    "password=",
    "password: \n x",
    "https://host:80/path@x",
    "https://host/?q=a@b",
    "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----",
    "it's 10:30, a=b; c:d",
];

fn masked(text: &str) -> String {
    mask_text(text)
}

#[test]
fn masks_each_shape_and_nothing_beside_it() {
    for (text, wanted) in shapes() {
        assert_eq!(masked(&text), wanted);
        let within = format!("2026 x {text}\nmore");
        assert_eq!(masked(&within), format!("2026 x {wanted}\nmore"));
    }
    for text in PLAIN {
        assert_eq!(masked(text), text);
    }
}

#[test]
fn a_private_key_of_many_lines_loses_all_of_them() {
    let log =
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\ndef==\n-----END OPENSSH PRIVATE KEY-----\nx";
    let wanted =
        "-----BEGIN OPENSSH PRIVATE KEY-----\n***\n*****\n-----END OPENSSH PRIVATE KEY-----\nx";
    assert_eq!(masked(log), wanted);
    let endless = format!(
        "-----BEGIN PRIVATE KEY-----{}",
        "x".repeat(KEY_BYTES_MAX + 1)
    );
    assert_eq!(
        masked(&endless).matches('x').count(),
        1,
        "one past the bound"
    );
}

#[test]
fn a_log_keeps_its_lines_and_a_split_secret_is_found() {
    let mut log = b"2026-01-01T00:00:00Z stdout P x pass
2026-01-01T00:00:00Z stderr F word=other
2026-01-01T00:00:01Z stdout P word=hun
2026-01-01T00:00:02Z stdout F ter2 y
2026-01-01T00:00:03Z stdout F -----BEGIN EC PRIVATE KEY-----
2026-01-01T00:00:04Z stdout F abc
2026-01-01T00:00:05Z stderr F between
2026-01-01T00:00:06Z stdout F -----END EC PRIVATE KEY-----
token=raw
2026-01-01T00:00:07Z stdout F end"
        .to_vec();
    mask_log(&mut log);
    let wanted = "2026-01-01T00:00:00Z stdout P x pass
2026-01-01T00:00:00Z stderr F word=other
2026-01-01T00:00:01Z stdout P word=***
2026-01-01T00:00:02Z stdout F **** y
2026-01-01T00:00:03Z stdout F -----BEGIN EC PRIVATE KEY-----
2026-01-01T00:00:04Z stdout F ***
2026-01-01T00:00:05Z stderr F between
2026-01-01T00:00:06Z stdout F -----END EC PRIVATE KEY-----
token=***
2026-01-01T00:00:07Z stdout F end";
    assert_eq!(String::from_utf8(log).unwrap(), wanted);
}

/// What costs more than its length would take hours here.
#[test]
fn hostile_logs_cost_their_length() {
    for piece in [
        "password=",
        "password ",
        "password\\\\\\\\",
        "eyJ",
        "eyJ.",
        "eyJ-",
        "eyJa.eyJa ",
        "://",
        "://@",
        "://a:",
        "-----BEGIN ",
        "-----BEGIN PRIVATE KEY",
        "-----BEGIN PRIVATE KEY-----",
        "bearer ",
        "AKIA",
        "xoxb-",
        "ghp_",
        "authorization:",
        "\"",
        "token='",
        "A",
        "\n",
    ] {
        let mut log = piece.repeat((256 << 10) / piece.len()).into_bytes();
        let bytes = log.len();
        mask_log(&mut log);
        assert_eq!(log.len(), bytes);
    }
}

proptest! {
    #[test]
    fn any_log_keeps_its_length_and_its_lines(pieces in prop::collection::vec(piece(), 0..60)) {
        let before = pieces.concat();
        let mut after = before.clone();
        mask_log(&mut after);
        prop_assert_eq!(after.len(), before.len());
        let mut changed = before.iter().zip(&after).filter(|(a, b)| a != b);
        prop_assert!(changed.all(|(a, b)| *b == MASK && *a != b'\n'));
        let lines_of = |log: &[u8]| -> Vec<_> {
            lines(log).into_iter().map(|line| (line.time, line.stream, line.is_part)).collect()
        };
        // A line of another format may lose the words of one.
        let same = lines_of(&before).into_iter().zip(lines_of(&after));
        prop_assert!(same.into_iter().all(|(a, b)| a.1 == LogStream::Unknown || a == b));
    }

    #[test]
    fn only_places_that_begin_no_secret_are_passed_over(pieces in prop::collection::vec(piece(), 0..20)) {
        let secrets = shapes().into_iter().map(|(before, _)| before.into_bytes());
        for text in secrets.chain([pieces.concat()]) {
            for at in 0..text.len() {
                prop_assert_eq!(secret(&text, at), shaped(&text, at));
            }
        }
    }

    #[test]
    fn a_secret_is_found_wherever_a_log_has_it(at in 0..40_usize, split in 0..30_usize) {
        let text = format!("{} password=correct-horse-battery {}", "x".repeat(at), "y".repeat(40 - at));
        let (first, second) = text.split_at(at + split);
        let mut log = format!("2026-01-01T00:00:00Z stderr P {first}\n2026-01-01T00:00:00Z stderr F {second}\n")
            .into_bytes();
        mask_log(&mut log);
        let masked = String::from_utf8(log).unwrap();
        prop_assert_eq!(masked.matches('*').count(), "correct-horse-battery".len());
    }
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        prop::sample::select(vec![
            "\n",
            "2026-01-01T00:00:00Z stdout F ",
            "2026-01-01T00:00:00Z stderr P ",
            "password=",
            "token: \"",
            "eyJhbGc.eyJ",
            ".",
            "Bearer ",
            "abcdefghijklmnopqrst",
            "://a:b@c",
            "-----BEGIN PRIVATE KEY-----",
            "-----END ",
            "AKIAABCDEFGHIJKLMNOP",
            " ",
            "é",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ]
}
