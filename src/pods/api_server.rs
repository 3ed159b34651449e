//! The API server's list of this node's pods, in one answer. A pass reads the present state, because an
//! answer from a stale cache would make new pods look deleted. Scrapes and people get the watch cache,
//! because a quorum read may read all pods of the cluster.

use reqwest::StatusCode;

use super::http::{Http, Server};
use super::parse::Author;
use super::{Error, Freshness, parse};
use crate::model::{PodList, ReadFrom};

/// Reads the pods that the API server has on the node.
pub(super) async fn list(http: &Http, node: &str, freshness: Freshness) -> Result<PodList, Error> {
    let body = http.get(&path(node, freshness), advice).await?;
    let list = parse::parse_answer(&body.bytes, Author::ApiServer, node);
    let list = list.map_err(|source| Error::NotPods {
        what: body.what,
        source,
    })?;
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

fn advice(server: &Server, status: StatusCode) -> String {
    let shown = server.shown();
    match status {
        StatusCode::UNAUTHORIZED => {
            format!("the API server rejects {shown} (pods.api_token_file, pods.api_cert_file)")
        }
        StatusCode::FORBIDDEN => {
            format!("{shown} lacks a right: grant its account list on pods, in all namespaces")
        }
        StatusCode::NOT_FOUND => "that is no API server (pods.api_url)".to_owned(),
        status if status.is_redirection() => {
            "redirects are not followed; that is no API server (pods.api_url)".to_owned()
        }
        _ => "the API server cannot answer".to_owned(),
    }
}
