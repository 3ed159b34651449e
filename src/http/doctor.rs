//! `GET /api/v1/doctor`: why litter comes up on this node, and what would stop it.

use axum::extract::State;
use axum::http::StatusCode;

use super::api::NoParameters;
use super::{HttpError, HttpResult, Service, json};
use crate::doctor::{Report, diagnose};
use crate::snapshot::Look;

pub(super) async fn get(State(service): State<Service>, NoParameters: NoParameters) -> HttpResult {
    let look = service.look().await?;
    let report = report(&service, &look).await?;
    Ok(json(StatusCode::OK, &report))
}

/// Finds the causes on the node of a look.
pub(super) async fn report(service: &Service, look: &Look) -> Result<Report, HttpError> {
    let journal = &service.worker.runner().journal;
    let client = service.observer.client();
    let doctor = &service.fixed.doctor;
    let mut facts = doctor.facts(look, service.config(), &client).await;
    facts.quarantined = service.quarantined_by_class(Some(look));
    facts.state = journal.status();
    service.heavy(move |_service| diagnose(&facts)).await
}
