//! Web configuration files: any content is accepted, or refused with a reason that names the file and no value.

use crisweep::access::passwords::BcryptHash;
use crisweep::access::tls::Tls;
use crisweep::access::web_config::{Error, WebConfig};
use proptest::prelude::*;
use proptest::sample::select;

use super::{cases, edited, edits};

const SAMPLE: &str = "\
tls_server_config:
  cert: CERT
  key: |
    KEY
  client_ca_file: 'ca.crt'
  client_auth_type: VerifyClientCertIfGiven
  client_allowed_sans: [a.example, \"10.0.0.1\"]
  min_version: TLS12
  cipher_suites:
  - TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
  curve_preferences: [CurveP256, X25519]
  prefer_server_cipher_suites: yes
http_server_config:
  http2: false
  headers: {X-Frame-Options: deny, Strict-Transport-Security: max-age=1}
basic_auth_users:
  alice: $2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG
rate_limit: {interval: 1m1.5s, burst: 3}
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
    "!<x> ",
    "|\n",
    ">",
    "'",
    "\"",
    "\\",
    "#",
    "---\n",
    "...\n",
    "<<: ",
    "? ",
    "~",
    "\t",
    "%YAML 9\n",
    "\u{feff}",
    "\u{85}",
    "$2y$31$",
    "99999999999999999999h",
    "TLS13",
    "cert_file: x\n",
];

fn load(text: &[u8]) -> Result<WebConfig, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.yml");
    std::fs::write(&path, text).unwrap();
    let read = WebConfig::load(&path);
    if let Err(error) = &read {
        let said = error.to_string();
        let why = said.strip_prefix(&format!("{}: ", path.display()));
        assert!(why.is_some_and(|why| !why.is_empty()), "{said}");
    }
    if let Ok(Some(tls)) = read.as_ref().map(|read| &read.tls) {
        // Its certificates are none.
        assert!(Tls::load(tls, &[b"h2", b"http/1.1"]).is_err());
    }
    read
}

/// A value of any key, and the words that only a secret of the test has.
fn value() -> impl Strategy<Value = String> {
    let secret = "s3cr3t".to_owned();
    prop_oneof![
        Just(secret.clone()),
        Just(format!("[{secret}]")),
        Just(format!("{{a: {secret}}}")),
        Just(format!("\"\\x41{secret}\"")),
        Just(format!("'{secret}")),
        Just(format!("*{secret}")),
        Just(format!("&{secret} a")),
        Just(format!("!{secret} a")),
        Just(format!("|\n    {secret}\n")),
        Just(format!("\"{secret}\\q\"")),
        Just(format!("{secret}: {secret}")),
        Just(format!("$2y$10${secret}")),
        Just(format!("- {secret}")),
        Just(format!("`{secret}")),
        Just(format!("@{secret}")),
        Just(format!("%{secret}")),
    ]
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_file_is_accepted_or_refused_with_a_reason(edits in edits(WORDS)) {
        let _settled = load(&edited(SAMPLE.into(), &edits));
    }

    #[test]
    fn any_words_in_any_order_are_accepted_or_refused(
        words in prop::collection::vec(select(WORDS), 0..40),
        lines in prop::collection::vec(select(SAMPLE.lines().collect::<Vec<_>>()), 0..8),
    ) {
        let mut text = words.concat();
        for line in lines {
            text += line;
            text += "\n";
        }
        let _settled = load(text.as_bytes());
    }

    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _settled = load(&bytes);
    }

    #[test]
    fn no_value_of_a_secret_key_is_shown(value in value(), key in select(vec![
        "tls_server_config: {cert_file: a, key: ",
        "tls_server_config:\n  cert_file: a\n  key: ",
        "tls_server_config:\n  key: ",
        "tls_server_config: ",
        "basic_auth_users:\n  alice: ",
        "basic_auth_users: {alice: ",
    ])) {
        let end = if key.contains('{') { "}" } else { "" };
        let text = format!("{key}{value}{end}\n");
        let shown = match load(text.as_bytes()) {
            Ok(read) => format!("{read:?}"),
            Err(error) => error.to_string(),
        };
        // A table's keys are names, and names are shown.
        let is_key = value.starts_with("s3cr3t:");
        prop_assert!(is_key || !shown.contains("s3cr3t"), "{}\n{}", text, shown);
    }

    #[test]
    fn any_text_is_a_hash_or_not(edits in edits(&["$", "2", "$2a$", "é", "31", "."])) {
        let hash = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";
        let text = String::from_utf8_lossy(&edited(hash.into(), &edits)).into_owned();
        match BcryptHash::parse(&text) {
            Ok(_) => prop_assert_eq!(text.len(), hash.len()),
            Err(why) => prop_assert!(!why.contains(&text) || text.len() < 8),
        }
    }
}

#[test]
fn the_sample_is_accepted() {
    load(SAMPLE.as_bytes()).unwrap();
}
