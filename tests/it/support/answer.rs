//! Answers of the service: complete ones, and streamed ones.

use std::time::Duration;

use reqwest::header::HeaderMap;
use serde_json::Value;

use super::wait::PATIENCE;

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        Self::try_of(request).await.unwrap()
    }

    pub(crate) async fn try_of(request: reqwest::RequestBuilder) -> reqwest::Result<Self> {
        let response = request.send().await?;
        Ok(Self {
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await?,
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text)
            .unwrap_or_else(|error| panic!("{} {error}: {}", self.status, self.text))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// Asserts a refusal with this status and a JSON error that contains these words.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, words: &str) {
        assert_eq!(self.status, status, "{}", self.text);
        assert_eq!(self.header("content-type"), Some("application/json"));
        let body = self.json();
        let error = body["error"].as_str().unwrap_or_default();
        assert!(error.contains(words), "{words:?} is not in: {}", self.text);
    }
}

/// A streamed answer, line by line.
pub(crate) struct Follow {
    response: reqwest::Response,
    rest: String,
}

impl Follow {
    pub(crate) async fn begin(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            response,
            rest: String::new(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let value = self.response.headers().get(name);
        value.map(|value| value.to_str().unwrap())
    }

    /// Returns the next line, or `None` at the end.
    pub(crate) async fn line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.rest.find('\n') {
                let rest = self.rest.split_off(end + 1);
                let mut line = std::mem::replace(&mut self.rest, rest);
                line.truncate(end);
                return Some(line);
            }
            let patience: Duration = PATIENCE;
            let chunk = tokio::time::timeout(patience, self.response.chunk()).await;
            let chunk = chunk.expect("a line or the end comes").unwrap()?;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    /// Returns all further lines.
    pub(crate) async fn rest(mut self) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = self.line().await {
            lines.push(line);
        }
        lines
    }
}
