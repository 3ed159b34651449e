//! The program.

use std::process::ExitCode;

use crisweep::cli;
use crisweep::system::memory;

fn main() -> ExitCode {
    memory::settle();
    cli::run(cli::parse())
}
