//! The command line, and what a reload does.

mod oneshot;
mod reload;
mod usage;
