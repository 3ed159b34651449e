//! Passes on a simulated node: what they remove, in which order, and what stops them.

mod asked_again;
mod bounds;
mod ends;
mod order;
mod partial_looks;
mod pods;
mod probes;
mod quarantine;
mod quiet;
mod races;
mod runtime;
mod scale;
mod shutdown;
mod statuses;
