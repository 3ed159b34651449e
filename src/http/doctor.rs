//! `GET /api/v1/doctor`: why litter comes up on this node, and what would stop it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::api::NoParameters;
use super::{Problem, Service, json};
use crate::doctor::{Report, diagnose};
use crate::snapshot::Look;

pub(super) async fn get(State(service): State<Service>, NoParameters: NoParameters) -> Response {
    let look = match service.look().await {
        Ok(look) => look,
        Err(problem) => return problem.into_response(),
    };
    match report(&service, &look).await {
        Ok(report) => json(StatusCode::OK, &report),
        Err(problem) => problem.into_response(),
    }
}

/// Finds the causes on the node of a look.
pub(super) async fn report(service: &Service, look: &Look) -> Result<Report, Problem> {
    let journal = &service.worker.runner().journal;
    let client = service.observer.client();
    let doctor = &service.fixed.doctor;
    let mut facts = doctor.facts(look, service.config(), &client).await;
    facts.quarantined = service.quarantined_by_class(Some(look));
    facts.state = journal.status();
    service.heavy(move |_service| diagnose(&facts)).await
}
