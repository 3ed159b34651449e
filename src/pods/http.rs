//! Asks the API server or the kubelet, and says what to do about a refusal.

use reqwest::StatusCode;

use super::Error;
use super::last_answer::LastAnswer;
use super::parse::ParseError;
use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::PodList;

/// Says what to do about a status other than 200.
type Advice = fn(&ApiServer, StatusCode) -> String;

/// Gets `path`; returns the answer's bytes.
pub(super) async fn get(client: &ApiClient, path: &str, advice: Advice) -> Result<Vec<u8>, Error> {
    let what = || client.server.line("GET", path);
    let answer = client.get(path).await;
    let answer = answer.map_err(|source| Error::Request {
        what: what(),
        source,
    })?;
    if answer.status != StatusCode::OK {
        return Err(Error::Refused {
            advice: advice(&client.server, answer.status),
            what: what(),
            status: answer.status,
        });
    }
    Ok(answer.bytes)
}

/// Gets `path`, and reads the pods from the answer with `parse`.
pub(super) async fn pods(
    client: &ApiClient,
    path: &str,
    advice: Advice,
    last_answer: &mut LastAnswer,
    parse: impl FnOnce(&[u8]) -> Result<PodList, ParseError>,
) -> Result<PodList, Error> {
    let bytes = get(client, path, advice).await?;
    last_answer
        .parse(&bytes, parse)
        .map_err(|source| Error::NotPods {
            what: client.server.line("GET", path),
            source,
        })
}
