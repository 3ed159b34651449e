//! crisweep keeps Kubernetes nodes from drowning in what containers leave behind.
//!
//! Reading order, and who may use whom, never one further down (`tests/it/tidy.rs` holds the sources to
//! it); `all` is each one above:
//!
//! | module | may use | kind |
//! |---|---|---|
//! | [`model`] | - | pure: the nouns |
//! | [`report`] | model | pure: what a pass was asked for, and what came of it |
//! | [`gc`] | model, report | pure: policy, knowledge, plan, check, gate |
//! | [`escape`] | - | pure: text from outside, made safe to write |
//! | [`telemetry`] | escape | logging set-up, and its bounds |
//! | [`aside`] | - | what a disk may hold for ever, on threads of its own |
//! | [`cri`] | aside, model, report | the runtime |
//! | [`pods`] | aside, model | the pod source |
//! | [`logs`] | model, report | the files below the log roots |
//! | [`memory`] | - | gives freed memory back |
//! | [`metrics`] | gc, model, report | own counters |
//! | [`state`] | gc, metrics, model, report | what outlives the process: journal, image ages, lock |
//! | [`config`] | gc, model, state, telemetry | reads files and environment, at start and reload only |
//! | [`observe`] | aside, cri, logs, memory, pods, model, report, state | one look at the node, shared |
//! | [`quarantine`] | model, report | sandboxes that failed |
//! | [`record`] | escape, report | a pass as others see it |
//! | [`pass`] | aside, gc, logs, model, observe, pods, cri, metrics, quarantine, record, report, state | one pass |
//! | [`worker`] | pass, gc, model, record, report, state, telemetry | who may have a pass, one at a time |
//! | [`alert`] | metrics, model, report | what an alert asks of this node |
//! | [`poll`] | alert, gc, metrics, report, telemetry, worker | alerts asked for at Alertmanagers |
//! | [`thresholds`] | gc, model, observe, report, worker | marks at which a pass comes by itself |
//! | [`scrape`] | observe, cri, escape, model, gc, report, metrics, telemetry, thresholds | the metrics page |
//! | [`http`] | alert, config, escape, memory, worker, observe, gc, model, cri, scrape, metrics, quarantine, record, report, telemetry, thresholds | the HTTP side |
//! | [`app`] | all | builds each part once and joins them |
//! | [`cli`] | all | the command line: arguments, and the service on a simulated node |
//! | [`command`] | all | `plan` and `gc` on the command line |

pub mod alert;
pub mod app;
pub mod aside;
pub mod cli;
pub mod command;
pub mod config;
pub mod cri;
pub mod escape;
pub mod gc;
pub mod http;
pub mod logs;
pub mod memory;
pub mod metrics;
pub mod model;
pub mod observe;
pub mod pass;
pub mod pods;
pub mod poll;
pub mod quarantine;
pub mod record;
pub mod report;
pub mod scrape;
pub mod state;
pub mod telemetry;
pub mod thresholds;
pub mod worker;
