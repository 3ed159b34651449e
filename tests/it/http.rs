//! The HTTP side, from outside: every path, every limit, every refusal.

mod cancel;
mod crowds;
mod doctor;
mod escapes;
mod explain;
mod gc;
pub(crate) mod guard;
mod limits;
mod openapi;
mod page;
mod paths;
mod plans;
mod quarantine;
mod scrape;
mod shapes;
