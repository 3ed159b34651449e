//! Alertmanager's webhook: what an alert leads to, and what it does not.

mod brakes;
mod duplicates;
pub(crate) mod hook;
mod refused;
mod routes;
