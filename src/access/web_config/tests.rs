use std::process::Command;
use std::time::Duration;

use rustls::version::{TLS12, TLS13};

use super::*;
use crate::access::tests::certificates::TestDir;
use crate::access::tls::Tls;

const HASH: &str = "$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG";

/// A file with a minimal TLS section and more keys in it.
fn tls(more: &str) -> String {
    let more = more.replace('\n', "\n  ");
    format!("tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n  {more}\n")
}

fn verified(more: &str) -> String {
    let kind = "client_auth_type: RequireAndVerifyClientCert";
    tls(&format!("{kind}\nclient_ca_file: ca.crt\n{more}"))
}

fn load(text: &str) -> Result<WebConfig, Error> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.yml");
    std::fs::write(&path, text).unwrap();
    WebConfig::load(&path)
}

fn refusal(text: &str) -> String {
    match load(text) {
        Ok(read) => panic!("accepted: {text}\n{read:?}"),
        Err(Error { refusal, .. }) => refusal.to_string(),
    }
}

fn tls_of(text: &str) -> TlsServerConfig {
    load(text).unwrap().tls.unwrap()
}

#[test]
fn an_empty_file_means_no_tls_and_no_users() {
    for text in [
        "",
        "---\n",
        "# nothing\n",
        "{}",
        "~",
        "tls_server_config:\nbasic_auth_users: {}\n",
    ] {
        let read = load(text).unwrap();
        assert!(
            read.tls.is_none() && read.users.is_empty() && read.http2,
            "{text}"
        );
        assert!(
            read.headers.is_empty() && read.rate_limit.is_none(),
            "{text}"
        );
    }
    assert!(load("tls_server_config: {}").unwrap().tls.is_none());
}

#[test]
fn the_tls_section_has_the_toolkits_defaults() {
    let read = tls_of(&tls(""));
    assert_eq!(read.client_auth, None);
    assert_eq!(read.versions, [&TLS12, &TLS13]);
    assert_eq!((read.cipher_suites.len(), read.curves.len()), (9, 3));
    assert!(read.prefer_server_cipher_suites);
}

#[test]
fn paths_are_relative_to_the_files_directory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("web.yml");
    let text = "tls_server_config: {cert_file: certs/a.crt, key_file: /etc/a.key}\n";
    std::fs::write(&path, text).unwrap();
    let read = WebConfig::load(&path).unwrap();
    let files: Vec<&Path> = read.files().collect();
    assert_eq!(
        files,
        [&dir.path().join("certs/a.crt"), Path::new("/etc/a.key")]
    );
}

#[test]
fn every_key_of_a_web_configuration_file_is_read() {
    let read = load(&format!(
        "tls_server_config:\n  cert: CERT\n  key: KEY\n  client_ca: CA\n  client_auth_type: VerifyClientCertIfGiven\n  \
         client_allowed_sans: [a.example, 10.0.0.1]\n  min_version: TLS12\n  max_version: TLS12\n  cipher_suites: \
         [TLS_AES_128_GCM_SHA256, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\n  curve_preferences: [CurveP256, X25519]\n  \
         prefer_server_cipher_suites: no\nhttp_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n    \
         Strict-Transport-Security: max-age=1\n    Content-Security-Policy: ''\nbasic_auth_users:\n  alice: {HASH}\n  \
         0123: '{HASH}'\nrate_limit:\n  interval: 250ms\n  burst: 20\n"
    ));
    let read = read.unwrap();
    let section = read.tls.unwrap();
    assert_eq!(section.cert, Pem::Inline("CERT".to_owned()));
    assert_eq!(section.key, Pem::Inline("KEY".to_owned()));
    let client_auth = section.client_auth.unwrap();
    assert!(!client_auth.is_mandatory);
    let trusted = client_auth.trusted.unwrap();
    assert_eq!(trusted.ca, Pem::Inline("CA".to_owned()));
    let allowed = trusted.allowed_sans.as_ref().unwrap();
    assert_eq!(Vec::from_iter(allowed), ["10.0.0.1", "a.example"]);
    assert_eq!(section.versions, [&TLS12]);
    assert_eq!((section.cipher_suites.len(), section.curves.len()), (4, 2));
    assert!(!section.prefer_server_cipher_suites && !read.http2);
    let headers: Vec<_> = read.headers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(headers, ["strict-transport-security", "x-frame-options"]);
    assert_eq!(read.users.len(), 2);
    let limit = RateLimit {
        interval: Duration::from_millis(250),
        burst: 20,
    };
    assert_eq!(read.rate_limit, Some(limit));
}

#[test]
fn client_auth_types_are_read() {
    let kind = |kind: &str| tls_of(&tls(&format!("client_auth_type: {kind}"))).client_auth;
    let unverified = |is_mandatory| {
        Some(ClientAuth {
            is_mandatory,
            trusted: None,
        })
    };
    assert_eq!(kind("NoClientCert"), None);
    assert_eq!(kind("''"), None);
    assert_eq!(kind("RequestClientCert"), unverified(false));
    assert_eq!(kind("RequireAnyClientCert"), unverified(true));
    assert_eq!(kind("RequireClientCert"), unverified(true));
    let read = tls_of(&verified("")).client_auth.unwrap();
    assert!(read.is_mandatory && read.trusted.is_some());
}

/// A file that is refused, from `refused.txt`.
struct Bad {
    says: String,
    is_stricter: bool,
    text: String,
}

fn bad_files() -> Vec<Bad> {
    let lines = include_str!("refused.txt").lines();
    let mut all: Vec<Bad> = Vec::new();
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(says) = line.strip_prefix("refused ") {
            all.push(Bad {
                says: says.to_owned(),
                is_stricter: false,
                text: String::new(),
            });
            continue;
        }
        let case = all.last_mut().unwrap();
        match line.strip_prefix("  ") {
            Some(text) => case.text += &format!("{text}\n"),
            None => case.is_stricter = line.starts_with("stricter "),
        }
    }
    assert!(all.len() > 50, "{} cases", all.len());
    all
}

#[test]
fn bad_files_are_refused_with_the_key() {
    for case in bad_files() {
        let said = refusal(&case.text);
        assert!(
            said.contains(&case.says),
            "{}\n{said}\n{}",
            case.text,
            case.says
        );
    }
    let error = load(&tls("cert_filse: x")).unwrap_err().to_string();
    assert!(
        error.contains("web.yml: tls_server_config.cert_filse: line 4, column 3: unknown field"),
        "{error}"
    );
}

#[test]
fn what_follows_a_nul_is_not_ignored() {
    let text = "http_server_config: {}\n\0basic_auth_users: {}\n";
    assert!(refusal(text).contains("a NUL character"));
}

#[test]
fn a_web_configuration_file_that_cannot_be_read_is_refused() {
    let path = Path::new("/nonexistent/web.yml");
    let error = WebConfig::load(path).unwrap_err().to_string();
    assert!(
        error.starts_with("/nonexistent/web.yml: No such file"),
        "{error}"
    );
    let dir = tempfile::tempdir().unwrap();
    let error = WebConfig::load(dir.path()).unwrap_err().to_string();
    assert!(error.ends_with("it is not a regular file"), "{error}");
    let path = dir.path().join("web.yml");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(WebConfig::load(&path).is_err());
    let full = " ".repeat(FILE_MAX.try_into().unwrap());
    std::fs::write(&path, &full).unwrap();
    assert!(WebConfig::load(&path).is_ok());
    std::fs::write(&path, full + " ").unwrap();
    let error = WebConfig::load(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("it is larger than 1048576 bytes"),
        "{error}"
    );
}

#[test]
fn deep_nesting_is_refused() {
    for text in [
        "[".repeat(100_000),
        "{a: ".repeat(100_000),
        "- ".repeat(100_000),
    ] {
        let said = refusal(&text);
        assert!(said.contains("line 1, column "), "{said}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let secret = "c2VjcmV0";
    let texts = [
        format!("tls_server_config: {secret}"),
        format!("tls_server_config: {{key: {secret}, cert: x, key_file: y}}"),
        format!("basic_auth_users: {{alice: {secret}}}"),
        format!("basic_auth_users: {secret}"),
        format!("basic_auth_users: {{alice: $2y$10${secret}}}"),
        format!("http_server_config: {{http2: {secret}}}"),
        secret.to_owned(),
        format!("tls_server_config: {{key: '{secret}"),
        format!("tls_server_config: {{key: \"\\{secret}\"}}"),
    ];
    for text in texts {
        let said = refusal(&text);
        assert!(!said.contains(secret) && !said.contains("\\c"), "{said}");
    }
    let inline = format!("tls_server_config: {{cert: CERT, key: {secret}}}");
    let shown = format!("{:?}", load(&inline).unwrap());
    assert!(!shown.contains(secret), "{shown}");
    let shown = format!(
        "{:?}",
        load(&format!("basic_auth_users: {{alice: {HASH}}}")).unwrap()
    );
    assert!(
        shown.contains("alice") && shown.contains("cost: 10"),
        "{shown}"
    );
    assert!(!shown.contains("X0h1g"), "{shown}");
}

/// What we accept; the second value names the keys that promtool 2.42 does not know yet.
fn good_files() -> Vec<(String, Option<&'static str>)> {
    let old = [
        String::new(),
        tls(""),
        tls("min_version: TLS12\nmax_version: TLS13\nprefer_server_cipher_suites: false"),
        tls("cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]"),
        tls("cipher_suites: []\ncurve_preferences: []"),
        tls("curve_preferences: [X25519, CurveP384, CurveP256]"),
        tls("client_auth_type: NoClientCert"),
        tls("client_auth_type: RequestClientCert"),
        tls("client_auth_type: RequireAnyClientCert"),
        tls("client_auth_type: RequireClientCert"),
        tls("client_auth_type: VerifyClientCertIfGiven\nclient_ca_file: ca.crt"),
        verified(""),
        verified("cipher_suites:"),
        "http_server_config: {http2: off}\n".to_owned(),
        "http_server_config:\n  headers:\n    X-Content-Type-Options: nosniff\n    X-XSS-Protection: ''\n".to_owned(),
        format!("basic_auth_users: {{alice: {HASH}, 0123: '{HASH}', yes: \"{HASH}\", '': {HASH}}}\n"),
        format!("basic_auth_users: {{b: {}, a: {}}}\n", HASH.replace("2y", "2b"), HASH.replace("2y", "2a")),
        format!("basic_auth_users: !!map {{alice: !!str {HASH}}}\n"),
        "http_server_config: {http2: No, headers: {X-XSS-Protection: }}\n".to_owned(),
    ];
    let sans = verified("client_allowed_sans: [a, 10.0.0.1]");
    let new = [
        (
            "tls_server_config: {cert: INLINE, key: INLINE}".to_owned(),
            "cert",
        ),
        (sans, "client_allowed_sans"),
        (
            "rate_limit: {interval: 1m30s, burst: 5}".to_owned(),
            "rate_limit",
        ),
        (
            "rate_limit: {interval: 0, burst: 0}".to_owned(),
            "rate_limit",
        ),
    ];
    let old = old.into_iter().map(|text| (text, None));
    old.chain(new.into_iter().map(|(text, key)| (text, Some(key))))
        .collect()
}

/// The keys that promtool 2.42 does not know yet.
const NEW_KEYS: &[&str] = &[
    "cert",
    "key",
    "client_ca",
    "client_allowed_sans",
    "rate_limit",
];

/// Runs `promtool check web-config`; says whether it accepts the file, and what it says.
fn promtool(path: &Path) -> Option<(bool, String)> {
    match Command::new("promtool")
        .args(["check", "web-config"])
        .arg(path)
        .output()
    {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Some((output.status.success(), said))
        }
        Err(error) => {
            println!("skipped: promtool cannot be run: {error}");
            None
        }
    }
}

#[test]
fn promtool_accepts_what_we_accept() {
    let dir = TestDir::new("");
    for (text, unknown) in good_files() {
        dir.write("web.yml", &text);
        let read = WebConfig::load(&dir.web()).unwrap_or_else(|error| panic!("{text}\n{error}"));
        if let (Some(section), None) = (&read.tls, unknown) {
            Tls::load(section, &[b"http/1.1"]).unwrap_or_else(|error| panic!("{text}\n{error}"));
        }
        let Some((is_accepted, said)) = promtool(&dir.web()) else {
            return;
        };
        let is_too_old =
            unknown.is_some_and(|key| said.contains(&format!("field {key} not found")));
        assert!(is_accepted || is_too_old, "{text}\n{said}");
    }
}

#[test]
fn promtool_refuses_what_we_refuse_unless_we_are_stricter() {
    let dir = TestDir::new("");
    let mut differences = Vec::new();
    for case in bad_files() {
        dir.write("web.yml", &case.text);
        let Some((is_accepted, said)) = promtool(&dir.web()) else {
            return;
        };
        let is_too_old = NEW_KEYS
            .iter()
            .any(|key| said.contains(&format!("field {key} not found")));
        if case.is_stricter != is_accepted && !is_too_old {
            differences.push(format!("{}\n{said}", case.text));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
