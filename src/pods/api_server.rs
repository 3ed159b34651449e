//! The API server's list of this node's pods. Asks for all of it in one answer, and for the present
//! state: an answer from a stale cache would make new pods look deleted.

use reqwest::StatusCode;

use super::http::{Http, Server};
use super::parse::Author;
use super::{Error, parse};
use crate::model::PodList;

/// Reads the pods that the API server has on the node.
pub(super) async fn list(http: &mut Http, node: &str) -> Result<PodList, Error> {
    // Without `resourceVersion` the answer is read from a quorum; without `limit` it has one page.
    let body = http.get(&path(node), advice).await?;
    parse::parse_answer(&body.bytes, Author::ApiServer, node).map_err(|source| Error::NotPods {
        what: body.what,
        source,
    })
}

/// A node's name needs no escaping.
fn path(node: &str) -> String {
    format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}")
}

fn advice(server: &Server, status: StatusCode) -> String {
    let token = server.token();
    match status {
        StatusCode::UNAUTHORIZED => {
            format!("the API server does not take {token} (pods.api_token_file)")
        }
        StatusCode::FORBIDDEN => {
            format!("{token} lacks a right: grant its account list on pods, in all namespaces")
        }
        StatusCode::NOT_FOUND => "that is no API server (pods.api_url)".to_owned(),
        status if status.is_redirection() => {
            "redirects are not followed; that is no API server (pods.api_url)".to_owned()
        }
        _ => "the API server cannot answer".to_owned(),
    }
}
