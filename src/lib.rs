//! crisweep keeps Kubernetes nodes from drowning in what containers leave behind.
//!
//! One sentence: observe ([`snapshot`]) -> plan -> check ([`gc`]) -> carry out, batch by batch ([`pass`]) -> report
//! ([`metrics`], [`http`]).
//!
//! The rooms in reading order, each with the rooms that it may import (`all`: each one above). `tests/it/tidy.rs` parses
//! the sources and holds them to this table.
//!
//! | room | may import | what it is |
//! |---|---|---|
//! | [`model`] | - | pure: the nouns, from `Container` to `Pass`, and what of them is written |
//! | [`gc`] | model | pure: policy, pod knowledge, verdicts, plan, check |
//! | [`system`] | - | threads for disk reads that may hang; small files; memory given back; systemd |
//! | [`telemetry`] | model | logging set-up, and its bounds |
//! | [`runtime`] | model, system | the CRI client: lists and their fallbacks, removals, discovery |
//! | [`outgoing`] | model, system | requests to other servers: credentials, TLS, bounds |
//! | [`kubernetes`] | outgoing, system, telemetry | the API server and the kubelet: their credentials, kubeconfig files, plugins, requests |
//! | [`pods`] | kubernetes, model, outgoing, system, telemetry | the pod sources |
//! | [`fleet`] | kubernetes, model, outgoing, system | the brakes that hold for all nodes at once |
//! | [`logs`] | model, system | the log files below the log roots |
//! | [`evidence`] | logs, model | what is kept of a container before it goes |
//! | [`snapshot_file`] | gc, model | a snapshot as a file: written, and read from anywhere |
//! | [`state`] | gc, model, system | what outlives the process: one database, and the lock |
//! | [`access`] | kubernetes, model, system, telemetry | who asks and what they may do: credentials, TLS, the web configuration file |
//! | [`events`] | access, evidence, kubernetes, model | Kubernetes Events of what passes did |
//! | [`config`] | access, events, evidence, fleet, gc, logs, model, outgoing, pods, runtime, state, system, telemetry | the tree of all settings; reads files and environment, at start and reload only |
//! | [`snapshot`] | config, logs, model, pods, runtime, `snapshot_file`, state, system | one look at the node, shared by all who need one |
//! | [`doctor`] | config, model, pods, runtime, snapshot, state, system | why litter piles up: facts into findings; changes nothing |
//! | [`health`] | config, gc, snapshot | what is wrong with the node: one judgement for `crisweep check` and the page |
//! | [`metrics`] | config, gc, model, runtime, snapshot, telemetry | own counters, and the scraped page |
//! | [`pass`] | config, events, evidence, gc, logs, metrics, model, pods, runtime, snapshot, `snapshot_file`, state, system | one pass |
//! | [`trigger`] | config, fleet, gc, metrics, model, outgoing, pass, snapshot, state, system, telemetry | who may have a pass: alert, poll, thresholds, admission, the queue |
//! | [`http`] | access, config, doctor, evidence, fleet, gc, health, metrics, model, pass, runtime, snapshot, `snapshot_file`, state, system, telemetry, trigger | the HTTP side |
//! | [`app`] | all | builds each part once and joins them |
//! | [`cli`] | all | the command line: arguments, `plan`, `gc`, the demo |
//!
//! Where to add a reason to keep, a metric, a setting, a pod source or a target: `docs/ARCHITECTURE.md`.

pub mod access;
pub mod app;
pub mod cli;
pub mod config;
pub mod doctor;
pub mod events;
pub mod evidence;
pub mod fleet;
pub mod gc;
pub mod health;
pub mod http;
pub mod kubernetes;
pub mod logs;
pub mod metrics;
pub mod model;
pub mod outgoing;
pub mod pass;
pub mod pods;
pub mod runtime;
pub mod snapshot;
pub mod snapshot_file;
pub mod state;
pub mod system;
pub mod telemetry;
pub mod trigger;
