//! crisweep keeps Kubernetes nodes from drowning in what containers leave behind.
//!
//! Reading order, and who may use whom (`tests/it/tidy.rs` holds the sources to it):
//!
//! | module | may use | kind |
//! |---|---|---|
//! | [`model`] | - | pure: the nouns |
//! | [`gc`] | model | pure: policy, plan, check, gate |
//! | [`report`] | model, gc | pure: what a pass did |
//! | [`config`] | gc, model, cri | reads files and environment, at start only |
//! | [`cli`] | config, gc | the command line, as values |
//! | [`telemetry`] | config | logging |
//! | [`cri`] | model, report | the runtime |
//! | [`observe`] | cri, model | one look at the node |
//! | [`metrics`] | model, gc, report | own counters |
//! | [`scrape`] | observe, cri, model, gc, report, metrics | the metrics page |
//! | [`sim`] | cri | a simulated node; the service never uses it |

pub mod app;
pub mod cli;
pub mod command;
pub mod config;
pub mod cri;
pub mod demo;
pub mod gc;
pub mod http;
pub mod metrics;
pub mod model;
pub mod observe;
pub mod pass;
pub mod pods;
pub mod quarantine;
pub mod record;
pub mod report;
pub mod scrape;
pub mod sim;
pub mod telemetry;
pub mod worker;
