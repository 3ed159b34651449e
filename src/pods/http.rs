//! Asks the API server or the kubelet, and says what to do about a refusal.

use reqwest::StatusCode;

use super::Error;
use super::last_answer::LastAnswer;
use super::parse::{Author, parse_answer};
use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::PodList;

/// An answer with status 200.
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    /// The request, and the answer's content type.
    what: String,
}

/// Gets `path`; `advice` says what to do about a status other than 200.
pub(super) async fn get(
    client: &ApiClient,
    path: &str,
    advice: fn(&ApiServer, StatusCode) -> String,
) -> Result<Body, Error> {
    let what = client.server().line("GET", path);
    let answer = client.get(path).await;
    let answer = answer.map_err(|source| Error::Request {
        what: what.clone(),
        source,
    })?;
    if answer.status != StatusCode::OK {
        return Err(Error::Refused {
            advice: advice(client.server(), answer.status),
            what,
            status: answer.status,
        });
    }
    let content_type = answer.content_type.as_deref();
    Ok(Body {
        what: format!("{what} ({})", content_type.unwrap_or("no content type")),
        bytes: answer.bytes,
    })
}

impl Body {
    /// Reads the pods of a node.
    pub(super) fn pods(
        self,
        author: Author,
        node: &str,
        last_answer: &mut LastAnswer,
    ) -> Result<PodList, Error> {
        let list = last_answer.parse(&self.bytes, |text| parse_answer(text, author, node));
        list.map_err(|source| Error::NotPods {
            what: self.what,
            source,
        })
    }
}
