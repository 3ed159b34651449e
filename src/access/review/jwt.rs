//! What a token says of itself. Proves nothing: it only spares the API server questions about what it would refuse.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

/// How far this node's clock may be ahead of the API server's.
const LEEWAY: SignedDuration = SignedDuration::from_mins(5);

/// Says whether a text can be a signed JWT that is not over: header and claims are JSON objects.
pub(super) fn may_be_good(token: &str, now: Timestamp) -> bool {
    let mut parts = token.split('.');
    let (Some(header), Some(claims), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let has_signature = URL_SAFE_NO_PAD.decode(signature);
    has_signature.is_ok_and(|bytes| !bytes.is_empty())
        && object(header).is_some_and(|header| is_signed(&header))
        && object(claims).is_some_and(|claims| !is_over(&claims, now))
}

fn object(part: &str) -> Option<Map<String, Value>> {
    let json = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&json).ok()
}

fn is_signed(header: &Map<String, Value>) -> bool {
    let algorithm = header.get("alg").and_then(Value::as_str);
    algorithm.is_some_and(|it| !it.is_empty() && !it.eq_ignore_ascii_case("none"))
}

/// `exp` is in seconds since 1970, with or without a fraction.
fn is_over(claims: &Map<String, Value>, now: Timestamp) -> bool {
    match claims.get("exp") {
        None => false,
        Some(ends) => ends
            .as_f64()
            .is_none_or(|ends| ends + LEEWAY.as_secs_f64() < now.as_duration().as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn token(header: &str, claims: &str) -> String {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        format!("{}.{}.{}", part(header), part(claims), part("signature"))
    }

    fn is_good(token: &str) -> bool {
        may_be_good(token, Timestamp::from_second(NOW).unwrap())
    }

    #[test]
    fn header_and_claims_are_objects_and_the_token_is_signed() {
        assert!(is_good(&token(r#"{"alg":"RS256"}"#, "{}")));
        for (header, claims) in [
            ("{}", "{}"),
            (r#"{"alg":"none"}"#, "{}"),
            (r#"{"alg":1}"#, "{}"),
            (r#"["RS256"]"#, "{}"),
            (r#"{"alg":"RS256"}"#, "[]"),
            (r#"{"alg":"RS256"}"#, "claims"),
            (r#"{"alg":"RS256"}"#, ""),
            (r#"{"alg":"RS256"}"#, r#"{"sub":"a""#),
        ] {
            assert!(!is_good(&token(header, claims)), "{header} {claims}");
        }
        let deep = format!(r#"{{"a":{}"#, "[".repeat(4_000));
        assert!(!is_good(&token(r#"{"alg":"RS256"}"#, &deep)));
    }

    #[test]
    fn a_token_that_is_over_is_not_asked_about_unless_the_clocks_may_differ() {
        let ending = |ends: &str| {
            let claims = format!(r#"{{"exp":{ends}}}"#);
            is_good(&token(r#"{"alg":"RS256"}"#, &claims))
        };
        assert!(ending(&(NOW + 1).to_string()));
        assert!(ending(&(NOW - 299).to_string()));
        assert!(ending("1800000000.5") && ending("1e300"));
        assert!(!ending(&(NOW - 301).to_string()));
        assert!(!ending("0") && !ending("-1") && !ending("null") && !ending("\"later\""));
    }
}
