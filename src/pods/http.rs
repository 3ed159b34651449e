//! Asks the API server or the kubelet, and says what to do about a refusal.

use reqwest::StatusCode;

use super::Error;
use super::last_answer::LastAnswer;
use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::PodList;

/// Says what to do about a status other than 200.
type Advice = fn(&ApiServer, StatusCode) -> String;

/// Gets `path`; returns the answer's bytes.
pub(super) async fn get(client: &ApiClient, path: &str, advice: Advice) -> Result<Vec<u8>, Error> {
    let what = || client.server.line("GET", path);
    let answer = client.get(path).await;
    let answer = answer.map_err(|cause| Error::caused(what(), cause))?;
    let status = answer.status;
    if status != StatusCode::OK {
        let advice = advice(&client.server, status);
        return Err(Error::new(format!("{}: {status}: {advice}", what())));
    }
    Ok(answer.bytes)
}

/// Gets `path`, and reads the pods from the answer with `parse`.
pub(super) async fn pods(
    client: &ApiClient,
    path: &str,
    advice: Advice,
    last_answer: &mut LastAnswer,
    parse: impl FnOnce(&[u8]) -> Result<PodList, String>,
) -> Result<PodList, Error> {
    let bytes = get(client, path, advice).await?;
    last_answer
        .parse(&bytes, parse)
        .map_err(|cause| Error::caused(client.server.line("GET", path), cause))
}
