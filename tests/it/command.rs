//! The command line, and what a reload does.

mod demo;
mod doctor;
mod explain;
mod oneshot;
mod reload;
mod service;
mod simulate;
mod status;
mod stop;
mod strange_service;
mod two_steps;
mod usage;
