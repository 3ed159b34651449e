//! The HTTP side, from outside: every path, every limit, every refusal.

mod cancel;
mod crowds;
mod escapes;
mod explain;
mod gc;
pub(crate) mod guard;
mod limits;
mod paths;
mod plans;
mod quarantine;
mod scrape;
mod shapes;
