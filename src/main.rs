//! The program.

use std::process::ExitCode;

use clap::Parser;
use crisweep::cli::{self, Cli};
use crisweep::system::memory;

fn main() -> ExitCode {
    memory::settle();
    cli::run(Cli::parse())
}
