//! Alertmanager's webhook: which alerts cause a pass.

mod brakes;
mod duplicates;
pub(crate) mod hook;
mod refused;
mod routes;
