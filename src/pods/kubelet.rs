//! The kubelet's `/pods`. Asks for nothing else, so the right `nodes/pods` is enough.

use reqwest::StatusCode;

use super::http::{Http, Server};
use super::last_answer::LastAnswer;
use super::parse::Author;
use super::{Error, parse};
use crate::model::PodList;

/// Reads the kubelet's pods.
pub(super) async fn list(
    http: &Http,
    node: &str,
    last_answer: &mut LastAnswer,
) -> Result<PodList, Error> {
    let body = http.get("/pods", advice).await?;
    let parse = |text: &[u8]| parse::parse_answer(text, Author::Kubelet, node);
    let parsed = last_answer.parse(&body.bytes, parse);
    parsed.map_err(|source| Error::NotPods {
        what: body.what,
        source,
    })
}

/// Reads the kubelet's `/configz`. Asked for people alone, never for pods.
pub(super) async fn configz(http: &Http) -> Result<Vec<u8>, Error> {
    Ok(http.get("/configz", configz_advice).await?.bytes)
}

fn configz_advice(server: &Server, status: StatusCode) -> String {
    match status {
        StatusCode::FORBIDDEN => format!(
            "{} lacks a right: grant its account get on nodes/configz, never nodes/proxy (a kubelet before 1.33 knows \
             only the latter)",
            server.shown()
        ),
        _ => advice(server, status),
    }
}

fn advice(server: &Server, status: StatusCode) -> String {
    let shown = server.shown();
    match status {
        StatusCode::UNAUTHORIZED => {
            format!(
                "the kubelet refuses {shown} (pods.kubelet_token_file, pods.kubelet_cert_file). It asks the API server about \
                 each token, and remembers the answer for two minutes: while the API server is down \
                 it refuses every token"
            )
        }
        StatusCode::FORBIDDEN => format!(
            "{shown} lacks a right: grant its account get on nodes/pods, never nodes/proxy \
             (a kubelet before 1.33 knows only the latter: use another pods.source there)"
        ),
        StatusCode::NOT_FOUND => "that is no kubelet (pods.kubelet_url)".to_owned(),
        status if status.is_redirection() => {
            "redirects are not followed; that is no kubelet (pods.kubelet_url)".to_owned()
        }
        _ => "the kubelet cannot answer".to_owned(),
    }
}
