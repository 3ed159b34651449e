//! The kubelet's `/pods`. Asks for nothing else, so the right `nodes/pods` is enough.

use reqwest::StatusCode;

use super::Error;
use super::http::{get, pods};
use super::last_answer::LastAnswer;
use super::parse::{Author, parse_answer};
use crate::kubernetes::{ApiClient, ApiServer};
use crate::model::PodList;

/// Reads the kubelet's pods.
pub(super) async fn list(
    client: &ApiClient,
    node: &str,
    last_answer: &mut LastAnswer,
) -> Result<PodList, Error> {
    let parse = |text: &[u8]| parse_answer(text, Author::Kubelet, node);
    pods(client, "/pods", advice, last_answer, parse).await
}

/// Reads the kubelet's `/configz`. Asked for people alone, never for pods.
pub(super) async fn configz(client: &ApiClient) -> Result<Vec<u8>, Error> {
    get(client, "/configz", configz_advice).await
}

fn configz_advice(server: &ApiServer, status: StatusCode) -> String {
    match status {
        StatusCode::FORBIDDEN => format!(
            "{} lacks a right: grant its account get on nodes/configz, never nodes/proxy (a kubelet before 1.33 knows \
             only the latter)",
            server.shown()
        ),
        _ => advice(server, status),
    }
}

fn advice(server: &ApiServer, status: StatusCode) -> String {
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
