//! Masks secrets of well-known shapes in a log: each of their bytes becomes `*`, so that every other byte stays where
//! it is.
//!
//! Reads what the container wrote, not the file's lines: a secret that the runtime split into two parts, and a key of
//! several lines, are found. Takes time in proportion to the log, whatever it holds. Not a promise: a secret without a
//! shape cannot be told from a word.

use std::sync::LazyLock;

use super::cri_log::{LogStream, lines};

/// The byte in place of each byte of a secret.
const MASK: u8 = b'*';

/// Bytes before the kept ones that are looked at, so that a secret that begins there is found.
pub const CONTEXT_BYTES: usize = 8 << 10;

/// A fixed text that a secret begins with, the least number of bytes after it, and which bytes those are.
type Prefix = (&'static str, usize, fn(u8) -> bool);

/// Secrets that begin with a fixed text.
const PREFIXES: &[Prefix] = &[
    ("AKIA", 16, is_upper), // AWS
    ("ASIA", 16, is_upper),
    ("ghp_", 20, is_word), // GitHub
    ("gho_", 20, is_word),
    ("ghu_", 20, is_word),
    ("ghs_", 20, is_word),
    ("ghr_", 20, is_word),
    ("github_pat_", 20, is_word),
    ("glpat-", 20, is_base64url), // GitLab
    ("xoxb-", 10, is_base64url),  // Slack
    ("xoxp-", 10, is_base64url),
    ("xoxa-", 10, is_base64url),
    ("xoxr-", 10, is_base64url),
    ("xoxs-", 10, is_base64url),
    ("xapp-", 10, is_base64url),
    ("AIza", 35, is_base64url), // Google
    ("sk_live_", 16, is_word),  // Stripe
    ("rk_live_", 16, is_word),
    ("npm_", 30, is_word),
];

/// Words that name a secret, in lower case: what follows them and `=` or `:` is one.
const KEYS: &[&str] = &[
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "access_key",
    "access-key",
    "accesskey",
    "private_key",
    "private-key",
    "privatekey",
    "credential",
];
/// The same for a secret that goes on to the end of its line.
const HEADERS: &[&str] = &["authorization", "set-cookie", "cookie"];
/// Schemes of HTTP authentication, in lower case.
const SCHEMES: &[&str] = &["bearer ", "basic "];
/// Shortest secret after a scheme: shorter ones are words.
const SCHEME_SECRET_MIN: usize = 16;
/// The most bytes of a name after the word that names a secret (`secretKeyRef`).
const NAME_REST_MAX: usize = 16;
/// The most quotes and spaces on each side of `=` or `:`.
const GAP_MAX: usize = 8;
/// The longest user and password in a URL.
const USER_INFO_MAX: usize = 1 << 10;
/// What comes before a user and password in a URL.
const USER_INFO: &str = "://";
/// The first letters of a JWT.
const JWT: &str = "eyJ";
const KEY_BEGIN: &str = "-----BEGIN ";
/// The longest kind of a PEM block.
const KEY_KIND_MAX: usize = 64;
/// The most bytes that count as a private key if its end is missing.
const KEY_BYTES_MAX: usize = 16 << 10;

/// Masks secrets in a log in the CRI's format.
pub fn mask_log(log: &mut [u8]) {
    let lines = lines(log);
    for stream in LogStream::ALL {
        let of_stream = || lines.iter().filter(|line| line.stream == stream);
        let mut text = Vec::new();
        for line in of_stream() {
            text.extend_from_slice(log.get(line.text.clone()).unwrap_or_default());
            if !line.is_part {
                text.push(b'\n');
            }
        }
        mask(&mut text);
        let mut from = text.as_slice();
        for line in of_stream() {
            if let Some(place) = log.get_mut(line.text.clone())
                && let Some((part, rest)) = from.split_at_checked(place.len())
            {
                place.copy_from_slice(part);
                from = rest.get(usize::from(!line.is_part)..).unwrap_or_default();
            }
        }
    }
}

/// Masks secrets in a text such as a status message.
pub fn mask_text(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    mask(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Masks secrets in place.
fn mask(text: &mut [u8]) {
    let mut at = 0;
    while at < text.len() {
        let Some((from, to)) = secret(text, at) else {
            at += 1;
            continue;
        };
        for byte in text.get_mut(from..to).unwrap_or_default() {
            if *byte != b'\n' {
                *byte = MASK;
            }
        }
        at = to.max(at + 1);
    }
}

/// For the first, second and third byte of a text: which shapes of secrets, a bit each, may have this byte there. At most
/// places of a log no shape can begin, so none is compared. Two shapes with the same bit only cost time.
static BEGINNINGS: LazyLock<[[u64; 256]; 3]> = LazyLock::new(|| {
    let prefixes = PREFIXES.iter().map(|(prefix, ..)| *prefix);
    let words = [KEYS, HEADERS, SCHEMES].into_iter().flatten().copied();
    let shapes = prefixes.chain(words).chain([KEY_BEGIN, USER_INFO, JWT]);
    let mut beginnings = [[0; 256]; 3];
    for (shape, number) in shapes.zip((0..u64::BITS).cycle()) {
        for (shapes, byte) in beginnings.iter_mut().zip(shape.bytes()) {
            for byte in [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()] {
                if let Some(shapes) = shapes.get_mut(usize::from(byte)) {
                    *shapes |= 1 << number;
                }
            }
        }
    }
    beginnings
});

/// Finds the secret whose shape begins at `at`.
fn secret(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let begin: &[u8; 3] = text.get(at..)?.first_chunk()?;
    let shapes = |(of_place, byte): (&[u64; 256], &u8)| of_place.get(usize::from(*byte)).copied();
    let shapes = BEGINNINGS.iter().zip(begin).filter_map(shapes);
    if shapes.fold(u64::MAX, |all, some| all & some) == 0 {
        return None;
    }
    shaped(text, at)
}

/// The same for a place where a secret may begin. Looks at a bounded number of bytes if there is none, except for a JWT:
/// it begins at a word's start only.
fn shaped(text: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = text.get(at..)?;
    let found = match rest.first()? {
        b'-' => private_key(rest),
        b':' => user_info(rest),
        b'e' if is_start(text, at, is_base64url) => jwt(rest),
        _ => None,
    };
    let found = found
        .or_else(|| prefixed(rest).filter(|_| is_start(text, at, |b| b.is_ascii_alphanumeric())))
        .or_else(|| named(rest))
        .or_else(|| scheme(rest).filter(|_| is_start(text, at, is_word)));
    found.map(|(from, to)| (at + from, at + to))
}

/// Says whether the byte before does not belong to the same word.
fn is_start(text: &[u8], at: usize, is_in_word: impl Fn(u8) -> bool) -> bool {
    let before = at.checked_sub(1).and_then(|at| text.get(at));
    before.is_none_or(|b| !is_in_word(*b))
}

/// `AKIA...`: all of it.
fn prefixed(rest: &[u8]) -> Option<(usize, usize)> {
    PREFIXES.iter().find_map(|(prefix, min, is_in)| {
        let secret = rest.strip_prefix(prefix.as_bytes())?;
        let long = run(secret, *is_in, usize::MAX);
        (long >= *min).then_some((prefix.len(), prefix.len() + long))
    })
}

/// `eyJ....eyJ....signature`: all after the first three bytes.
fn jwt(rest: &[u8]) -> Option<(usize, usize)> {
    if !rest.starts_with(JWT.as_bytes()) {
        return None;
    }
    let mut end = run(rest, is_base64url, usize::MAX);
    for _ in 0..2 {
        if rest.get(end) != Some(&b'.') {
            return None;
        }
        end += 1;
        end += run(rest.get(end..)?, is_base64url, usize::MAX);
    }
    Some((JWT.len(), end))
}

/// `password = "..."`: the value.
fn named(rest: &[u8]) -> Option<(usize, usize)> {
    let begins = |word: &&&str| starts_with_word(rest, word);
    let (word, is_header) = match KEYS.iter().find(begins) {
        Some(word) => (word, false),
        None => (HEADERS.iter().find(begins)?, true),
    };
    let mut at = word.len();
    at += run(rest.get(at..)?, is_word, NAME_REST_MAX);
    at += run(rest.get(at..)?, is_gap, GAP_MAX);
    if !matches!(rest.get(at)?, b'=' | b':') {
        return None;
    }
    at += 1;
    at += run(rest.get(at..)?, |b| b == b' ' || b == b'\t', GAP_MAX);
    // Within a quoted text a quote is escaped.
    at += run(rest.get(at..)?, |b| b == b'\\', 1);
    let value = rest.get(at..)?;
    let (quote, is_in): (usize, fn(u8) -> bool) = match value.first()? {
        b'"' => (1, |b| !matches!(b, b'"' | b'\\' | b'\n')),
        b'\'' => (1, |b| !matches!(b, b'\'' | b'\\' | b'\n')),
        _ if is_header => (0, |b| !matches!(b, b'"' | b'\'' | b'\\' | b'\n')),
        _ => (0, is_value),
    };
    at += quote;
    let long = run(rest.get(at..)?, is_in, usize::MAX);
    (long > 0).then_some((at, at + long))
}

/// `Bearer ...`: the credentials.
fn scheme(rest: &[u8]) -> Option<(usize, usize)> {
    let scheme = SCHEMES.iter().find(|word| starts_with_word(rest, word))?;
    let at = scheme.len();
    let is_in = |b| is_base64url(b) || b"+/=.~".contains(&b);
    let long = run(rest.get(at..)?, is_in, usize::MAX);
    (long >= SCHEME_SECRET_MIN).then_some((at, at + long))
}

/// `://user:password@`: the password; all of it if there is no colon.
fn user_info(rest: &[u8]) -> Option<(usize, usize)> {
    let info = rest.strip_prefix(USER_INFO.as_bytes())?;
    let is_in = |b: u8| !b.is_ascii_whitespace() && !b"/?#\"'<>\\".contains(&b);
    let info = info.get(..run(info, is_in, USER_INFO_MAX))?;
    let end = info.iter().rposition(|b| *b == b'@')?;
    let colon = info.iter().position(|b| *b == b':').filter(|at| *at < end);
    let from = colon.map_or(0, |at| at + 1);
    (from < end).then_some((from + USER_INFO.len(), end + USER_INFO.len()))
}

/// `-----BEGIN ... PRIVATE KEY-----`: what follows, up to its end.
fn private_key(rest: &[u8]) -> Option<(usize, usize)> {
    let kind = rest.strip_prefix(KEY_BEGIN.as_bytes())?;
    let long = run(kind, |b| b.is_ascii_uppercase() || b == b' ', KEY_KIND_MAX);
    let (kind, body) = kind.split_at_checked(long)?;
    let body = body
        .strip_prefix(b"-----")
        .filter(|_| kind.ends_with(b"PRIVATE KEY"))?;
    let from = rest.len() - body.len();
    let body = body.get(..body.len().min(KEY_BYTES_MAX))?;
    let end = body.windows(9).position(|it| it == b"-----END ");
    Some((from, from + end.unwrap_or(body.len())))
}

/// Says whether a text begins with a word, in whatever case. The word is in lower case.
fn starts_with_word(rest: &[u8], word: &str) -> bool {
    let begin = rest.get(..word.len());
    begin.is_some_and(|begin| begin.eq_ignore_ascii_case(word.as_bytes()))
}

/// Returns how many bytes from the start are of a kind, at most `max`.
fn run(text: &[u8], is_in: impl Fn(u8) -> bool, max: usize) -> usize {
    let text = text.get(..max.min(text.len())).unwrap_or_default();
    let end = text.iter().position(|b| !is_in(*b));
    end.unwrap_or(text.len())
}

fn is_upper(b: u8) -> bool {
    b.is_ascii_uppercase() || b.is_ascii_digit()
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

fn is_base64url(b: u8) -> bool {
    is_word(b) || b == b'-'
}

fn is_gap(b: u8) -> bool {
    matches!(b, b'"' | b'\'' | b'\\' | b' ' | b'\t')
}

fn is_value(b: u8) -> bool {
    !b.is_ascii_whitespace() && !b",;&\"'\\)}]<>".contains(&b)
}

#[cfg(test)]
mod tests;
