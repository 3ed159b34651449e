//! The program's definition: its help, completions for shells, and manual pages.

pub(super) mod texts;

use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory, FromArgMatches};

use super::Cli;
use super::RemoteArgs;
use super::output::{note, print_bytes, written};

/// The commands that ask no service.
pub(super) const ASKS_NO_SERVICE: [&str; 8] = [
    "simulate",
    "serve",
    "demo",
    "config",
    "rules",
    "prepare-state",
    "completions",
    "man",
];

/// Arguments of `completions`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = COMPLETIONS_HELP)]
pub struct CompletionsArgs {
    /// bash, elvish, fish, powershell or zsh
    #[arg(hide_possible_values = true)]
    pub shell: clap_complete::Shell,
}

const COMPLETIONS_HELP: &str = "\
Exit codes:
  0  printed
  1  standard output cannot be written
  2  wrong arguments

Examples:
  crisweep completions bash > /usr/share/bash-completion/completions/crisweep
  crisweep completions zsh > \"${fpath[1]}/_crisweep\"
  source <(crisweep completions bash)         in this shell only
";

/// Arguments of `man`.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
#[command(after_long_help = MAN_HELP)]
pub struct ManArgs {
    /// The command [default: the program as a whole]
    pub command: Option<String>,
    /// Write the pages of the program and of all commands into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub dir: Option<PathBuf>,
}

const MAN_HELP: &str = "\
Exit codes:
  0  printed or written
  1  it cannot be written, or there is no such command
  2  wrong arguments

Examples:
  crisweep man gc | man -l -                     read a page
  crisweep man --dir /usr/local/share/man/man1   install all pages
";

/// Reads the arguments; prints help and ends the process where they ask for it, or are wrong.
pub fn parse() -> Cli {
    let parsed = program().try_get_matches();
    let parsed = parsed.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| {
        let code = match written(error.print()) {
            Ok(()) => error.exit_code(),
            Err(failure) => {
                note(&format!("crisweep: {failure:#}"));
                1
            }
        };
        std::process::exit(code)
    })
}

/// Returns the program's definition. Commands that ask no service take the options that name one, and do not show them:
/// `run` refuses them in words.
fn program() -> clap::Command {
    let service = RemoteArgs::augment_args(clap::Command::default());
    let hidden = service.get_arguments().map(|it| it.clone().hide(true));
    let hidden: Vec<clap::Arg> = hidden.collect();
    let without_service = |command: clap::Command| command.args(hidden.clone());
    let mut program = Cli::command();
    for name in ASKS_NO_SERVICE {
        // A feature may leave it out.
        if program.find_subcommand(name).is_some() {
            program = program.mut_subcommand(name, without_service);
        }
    }
    program
}

/// Runs `crisweep completions`.
///
/// # Errors
/// If they cannot be written.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut program(), "crisweep", &mut text);
    print_bytes(&text)
}

/// Runs `crisweep man`.
///
/// # Errors
/// If there is no such command, or a page cannot be written.
pub fn man(args: &ManArgs) -> anyhow::Result<()> {
    let mut program = described(program());
    if let Some(dir) = &args.dir {
        let written = clap_mangen::generate_to(program, dir);
        written.with_context(|| format!("cannot write manual pages to {}", dir.display()))?;
        note(&format!("manual pages written to {}", dir.display()));
        return Ok(());
    }
    program.build();
    let command = match &args.command {
        None => program,
        Some(name) => {
            let command = program.find_subcommand(name).cloned();
            command.with_context(|| format!("no command \"{name}\"; crisweep --help names all"))?
        }
    };
    print_bytes(&page(command)?)
}

/// `clap_mangen` leaves out the text of options that `-h` does not show.
fn described(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|arg| arg.hide_short_help(false));
    command.mut_subcommands(described)
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).render(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Command;

    /// A terminal's usual size.
    const LINES: usize = 24;
    const COLUMNS: usize = 80;
    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/cli.md");

    fn names() -> Vec<String> {
        let command = Cli::command();
        let names = command.get_subcommands().map(|it| it.get_name().to_owned());
        names.filter(|name| name != "help").collect()
    }

    #[test]
    fn only_commands_that_ask_a_service_have_options_that_name_one() {
        for name in names() {
            let mut program = program();
            program.build();
            let command = program.find_subcommand_mut(&name).unwrap();
            let asks = !ASKS_NO_SERVICE.contains(&name.as_str());
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                assert_eq!(help.contains("--service.url"), asks, "{name}: {help}");
                assert_eq!(help.contains("Which service"), asks, "{name}: {help}");
                assert!(help.contains("--config.file"), "{name}: {help}");
            }
        }
        // They are read all the same, before and after the command, and refused in words.
        let flags = ["--service.url", "http://a:1", "--log.level", "debug"];
        for line in [
            [&["serve"], &flags[..]].concat(),
            [&flags[..], &["serve"]].concat(),
        ] {
            let line = [&["crisweep"], &line[..]].concat();
            let cli = Cli::from_arg_matches(&program().get_matches_from(line)).unwrap();
            assert_eq!(cli.command, Some(Command::Serve));
            assert_eq!(cli.global.overrides.log_level.as_deref(), Some("debug"));
            assert_eq!(cli.global.remote.service_url.as_deref(), Some("http://a:1"));
        }
    }

    /// Returns the help of a command, as a terminal of 80 columns shows it.
    fn help(name: &str, long: bool) -> String {
        let mut command = Cli::command().term_width(COLUMNS);
        command.build();
        let command = command.find_subcommand_mut(name).unwrap();
        let mut command = command.clone().term_width(COLUMNS);
        let help = if long {
            command.render_long_help()
        } else {
            command.render_help()
        };
        help.to_string()
    }

    /// Lists have lines of their own; a paragraph is one line, which is broken where the terminal ends.
    fn fits_a_terminal(text: &str) {
        let (_, lists) = text.split_once("Exit codes:\n").unwrap();
        for line in lists.lines() {
            let is_of_list = line.is_empty() || line.starts_with("  ") || line == "Examples:";
            assert!(is_of_list && line.len() <= COLUMNS, "{line}");
        }
    }

    #[test]
    fn short_help_fits_a_screen_and_long_help_has_examples_and_exit_codes() {
        for name in names() {
            let short = help(&name, false);
            assert!(short.lines().count() <= LINES, "{name}: {short}");
            let long = help(&name, true);
            for words in ["Exit codes:\n  0  ", "Examples:\n  crisweep "] {
                assert!(long.contains(words), "{name}: {words}: {long}");
            }
            let command = Cli::command();
            let command = command.find_subcommand(&name).unwrap();
            fits_a_terminal(&command.get_after_long_help().unwrap().to_string());
        }
        fits_a_terminal(&Cli::command().get_after_long_help().unwrap().to_string());
    }

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let dir = tempfile::tempdir().unwrap();
        let args = ManArgs {
            command: None,
            dir: Some(dir.path().to_owned()),
        };
        man(&args).unwrap();
        for name in names() {
            let page = dir.path().join(format!("crisweep-{name}.1"));
            let page = std::fs::read_to_string(page).unwrap();
            assert!(
                page.contains(".SH EXTRA") || page.contains("Exit codes"),
                "{name}: {page}"
            );
        }
        let nothing = ManArgs {
            command: Some("sweep".to_owned()),
            dir: None,
        };
        assert!(man(&nothing).unwrap_err().to_string().contains("sweep"));
        for shell in clap::ValueEnum::value_variants() {
            let shell: &clap_complete::Shell = shell;
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "crisweep", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("explain"), "{shell}");
        }
    }

    /// `docs/cli.md` has the help of each command. `CRISWEEP_GENERATE=1` writes it anew.
    #[test]
    fn the_documentation_has_the_help_of_every_command() {
        let begin = "<!-- commands -->\n";
        let written = std::fs::read_to_string(PAGE).unwrap();
        let (head, _) = written.split_once(begin).unwrap();
        let mut page = format!("{head}{begin}");
        for name in names() {
            let command = Cli::command();
            let command = command.find_subcommand(&name).unwrap().clone();
            // Not built: without the options of every command.
            let mut command = command.bin_name(format!("crisweep {name}")).term_width(100);
            let help = command.render_long_help().to_string();
            let lines = help
                .lines()
                .map(str::trim_end)
                .collect::<Vec<_>>()
                .join("\n");
            page.push_str(&format!(
                "\n## crisweep {name}\n\n```text\n{}\n```\n",
                lines.trim_end()
            ));
        }
        if std::env::var_os("CRISWEEP_GENERATE").is_some() {
            std::fs::write(PAGE, page).unwrap();
            return;
        }
        for (line, wanted) in written.lines().zip(page.lines()) {
            assert_eq!(line, wanted, "CRISWEEP_GENERATE=1 writes docs/cli.md anew");
        }
        assert_eq!(written.len(), page.len());
    }
}
