//! `GET /metrics`. The node's part of the page is written once for each look, and all scrapes of that look share it;
//! the service's own figures are read for each scrape.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::IntoResponse;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::shared::LookKey;
use super::{HttpError, HttpResult, Service};
use crate::gc::knowledge::Knowledge;
use crate::gc::plan::summarize;
use crate::metrics::scrape::{self, Format, NodePart};
use crate::model::Targets;
use crate::snapshot::Look;
use crate::system::memory;

pub(super) async fn get(State(service): State<Service>, headers: HeaderMap) -> HttpResult {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let format = Format::from_accept(text("accept"));
    let timeout = scrape::timeout_from_header(text("x-prometheus-scrape-timeout-seconds"));
    let deadline = Instant::now() + timeout;
    let look = service.observer.shared(service.config().collect.max_age);
    let look = tokio::time::timeout_at(deadline, look)
        .await
        .ok()
        .and_then(Result::ok);
    let whole = async {
        let permit = Arc::clone(&service.fixed.limits.pages).acquire_owned();
        let permit = permit.await.ok()?;
        Some(render(&service, look, format, Some(permit)).await)
    };
    let own = render(&service, None, format, None);
    let Some(page) = rendered(deadline, whole, own).await else {
        let error = "the metrics page was not rendered within the scrape's timeout";
        return Err(HttpError::unavailable(error));
    };
    Ok(([(header::CONTENT_TYPE, format.content_type())], page).into_response())
}

/// Returns the whole page if it is rendered until then. If not, or if there are too many scrapes at once, the own
/// page, which omits the node's part, as it does without a look; it has [`OWN_PAGE_TIMEOUT`].
async fn rendered(
    deadline: Instant,
    whole: impl Future<Output = Option<String>>,
    own: impl Future<Output = String>,
) -> Option<String> {
    /// Less than what `scrape::timeout_from_header` reserves for sending, with the usual timeouts.
    const OWN_PAGE_TIMEOUT: Duration = Duration::from_millis(250);
    if let Ok(Some(page)) = tokio::time::timeout_at(deadline, whole).await {
        return Some(page);
    }
    tokio::time::timeout(OWN_PAGE_TIMEOUT, own).await.ok()
}

async fn render(
    service: &Service,
    look: Option<Arc<Look>>,
    format: Format,
    permit: Option<OwnedSemaphorePermit>,
) -> String {
    let service = service.clone();
    let work = move || {
        let _until_done = permit;
        service.metrics.braked(&service.worker.holding());
        let fleet = service.worker.fleet();
        service.metrics.fleet_read(fleet.hold_read_at());
        let keeps_state = service.config().state.dir.is_some();
        if keeps_state && !service.worker.runner().journal.status().journal {
            service.metrics.evidence_takes(None);
        }
        let part = match look {
            Some(look) => service.node_part(&look),
            None => service.without_look().map(Arc::new),
        };
        part.and_then(|part| scrape::render(&part, &service.metrics, format))
    };
    written(work).await
}

/// Writes a page. Neither half a page nor none may pass for a whole one: the text in its place fails the scrape.
async fn written(write: impl FnOnce() -> Result<String, fmt::Error> + Send + 'static) -> String {
    let page = spawn_blocking(write).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the metrics page could not be rendered; this is a bug in crisweep");
        Err(fmt::Error)
    });
    page.unwrap_or_else(|_| "the page could not be written\n".to_owned())
}

impl Service {
    fn node_part(&self, look: &Arc<Look>) -> Result<Arc<NodePart>, fmt::Error> {
        let config = self.config();
        let runner = self.worker.runner();
        let next_attempts = runner.quarantine.lock().next_attempts(look.taken_at);
        let of = (LookKey::new(look), Arc::clone(&config), next_attempts);
        self.fixed.node_parts.get(of, || {
            let (policy, snapshot) = (&config.policy, runner.snapshot(look).ok());
            let knowledge = snapshot.as_ref().map(|it| Knowledge::of(it, policy));
            let known = knowledge.as_ref();
            let plan = known.map(|it| summarize(it, &Targets::all().0));
            let pods = known.map_or_else(|| (&look.pods).into(), Knowledge::source_state);
            let part = NodePart::of(&scrape::PageInput {
                look: Some((look, pods)),
                version: None,
                plan: plan.as_ref(),
                quarantined: &self.quarantined_by_class(Some(look)),
                thresholds: &config.thresholds,
            });
            memory::give_back();
            part
        })
    }

    fn without_look(&self) -> Result<NodePart, fmt::Error> {
        NodePart::of(&scrape::PageInput {
            look: None,
            version: self.observer.version_so_far().as_ref(),
            plan: None,
            quarantined: &self.quarantined_by_class(None),
            thresholds: &self.config().thresholds,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    #[tokio::test]
    async fn a_page_that_is_not_written_to_its_end_fails_the_scrape() {
        for page in [
            written(|| Err(fmt::Error)).await,
            written(|| panic!("a bug")).await,
        ] {
            assert_eq!(page, "the page could not be written\n");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_is_rendered_late_gives_way_to_the_own_one_within_the_scrapes_time() {
        let soon = || Instant::now() + Duration::from_secs(9);
        let (whole, own) = (|| "whole".to_owned(), || "own".to_owned());
        let page = rendered(soon(), ready(Some(whole())), ready(own()));
        assert_eq!(page.await, Some(whole()));
        let page = rendered(soon(), ready(None), ready(own()));
        assert_eq!(page.await, Some(own()), "too many scrapes");
        let began = Instant::now();
        let page = rendered(soon(), std::future::pending(), ready(own()));
        assert_eq!(page.await, Some(own()));
        let page = rendered(soon(), std::future::pending(), std::future::pending());
        assert_eq!(page.await, None);
        // Two scrapes of 9.5 s, with the time in which an answer is sent.
        assert!(began.elapsed() < Duration::from_secs(19));
    }
}
