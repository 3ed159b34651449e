//! The command line, and what a reload does.

mod demo;
mod explain;
mod oneshot;
mod reload;
mod simulate;
mod two_steps;
mod usage;
