//! The API server's list of this node's pods, in one answer. A pass reads the present state, because an
//! answer from a stale cache would make new pods look deleted. Scrapes and people get the watch cache,
//! because a quorum read may read all pods of the cluster.

use reqwest::StatusCode;

use super::http::pods;
use super::last_answer::LastAnswer;
use super::parse::{Author, parse_answer};
use super::{Error, Freshness};
use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::{PodList, ReadFrom};

/// Reads the pods that the API server has on the node.
pub(super) async fn list(
    client: &ApiClient,
    node: &str,
    freshness: Freshness,
    last_answer: &mut LastAnswer,
) -> Result<PodList, Error> {
    let path = path(node, freshness);
    let parse = |text: &[u8]| parse_answer(text, Author::ApiServer, node);
    let list = pods(client, &path, advice, last_answer, parse).await?;
    let read_from = match freshness {
        Freshness::Cached => ReadFrom::Cache,
        Freshness::Quorum { .. } => ReadFrom::Origin,
    };
    Ok(PodList { read_from, ..list })
}

/// Without `resourceVersion` the answer is read from a quorum, with 0 from the watch cache; without `limit`
/// it is one page. A node name needs no escaping.
fn path(node: &str, freshness: Freshness) -> String {
    let version = match freshness {
        Freshness::Cached => "&resourceVersion=0",
        Freshness::Quorum { .. } => "",
    };
    format!("/api/v1/pods?fieldSelector=spec.nodeName%3D{node}{version}")
}

fn advice(server: &ApiServer, status: StatusCode) -> String {
    let (shown, url) = (server.shown(), server.url_key());
    match status {
        StatusCode::UNAUTHORIZED => {
            let keys = server.credential_keys();
            format!("the API server rejects {shown} ({keys})")
        }
        StatusCode::FORBIDDEN => format!(
            "{shown} lacks a right: grant its account list on pods, in all namespaces (a kubelet's own \
             certificate may list the pods of its node: is node.name the node's name?)"
        ),
        StatusCode::NOT_FOUND => format!("that is no API server ({url})"),
        status if status.is_redirection() => {
            format!("redirects are not followed; that is no API server ({url})")
        }
        _ => "the API server cannot answer".to_owned(),
    }
}
