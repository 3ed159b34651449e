//! Answers of the running service to commands.

use anyhow::Context;
use reqwest::StatusCode;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::check::own_service::{Question, Silence};

impl Question {
    /// Asks for a path, and says on standard error that the service answers. The inner error says why it told nothing;
    /// the command then works by itself.
    ///
    /// # Errors
    /// With the service's own words, if it refuses.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> anyhow::Result<Result<T, &'static str>> {
        let (status, body) = match self.get(path).await {
            Ok(answer) => answer,
            Err(silence) => return Ok(Err(words(silence))),
        };
        match status {
            StatusCode::OK => {
                eprintln!("the running service answers");
                let value = serde_json::from_slice(&body);
                Ok(Ok(value.context("the service's answer is not understood")?))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(Err(words(Silence::Refuses))),
            _ => {
                let error: Option<Value> = serde_json::from_slice(&body).ok();
                let error = error.as_ref().and_then(|error| error["error"].as_str());
                anyhow::bail!(
                    "{}",
                    error.unwrap_or("the service does not answer the question")
                )
            }
        }
    }
}

fn words(silence: Silence) -> &'static str {
    match silence {
        Silence::Down => "no service answers at the addresses of web.listen",
        Silence::NoAnswer => "the service gives no answer in time",
        Silence::Hangs => "the service hangs",
        Silence::Refuses => "the service wants a credential",
        Silence::Foreign => "no crisweep answers at the addresses of web.listen",
    }
}

/// Writes a text as one part of a path, or as a value of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_encoded_in_a_path() {
        assert_eq!(encoded("shop/web#2?ü"), "shop%2Fweb%232%3F%C3%BC");
        assert_eq!(encoded("0aZ-._~"), "0aZ-._~");
    }
}
