//! The frame of every program: parse the command line, run the command, return the exit status.

use std::{
    ffi::OsString,
    io::{self, Write},
    process::ExitCode,
};

use clap::{Args, Parser};

/// The options of every command.
#[derive(Clone, Copy, Debug, Args)]
pub struct Common {
    /// Print exactly one JSON value on stdout; tables and progress go to stderr
    #[arg(long, global = true, display_order = LAST)]
    pub json: bool,

    /// Seed of all randomness: the same seed gives the same result
    #[arg(long, global = true, value_name = "N", default_value_t = 0, display_order = LAST)]
    pub seed: u64,
}

/// The display order of global options: after a command's own.
const LAST: usize = 900;

/// The error of a command.
pub trait Failure: std::error::Error {
    /// Returns the exit status: 1 if a check failed, 2 if the command was used wrongly.
    fn exit_status(&self) -> u8;

    /// Returns whether the reader of the report has closed its pipe: it has read enough.
    fn is_closed_pipe(&self) -> bool;
}

/// Parses `arguments`, the program's name first, runs the command, and returns the process's exit
/// status. Prints the error of a command to stderr, after the program's name.
///
/// # Example
///
/// ```
/// use std::process::ExitCode;
///
/// use clap::Parser;
/// use drtm_report::{Common, Error, Report, run};
///
/// #[derive(Parser)]
/// struct Count {
///     #[arg(long)]
///     to: u64,
///     #[command(flatten)]
///     common: Common,
/// }
///
/// let count = |count: Count| -> Result<(), Error> {
///     let report = Report::new(count.common.json);
///     report.text(&format!("up to {}", count.to))?;
///     report.result(&count.to)
/// };
/// assert_eq!(run("count", ["count", "--to", "7"], count), ExitCode::SUCCESS);
/// assert_eq!(run("count", ["count", "--to", "seven"], count), ExitCode::from(2));
/// ```
pub fn run<C: Parser, E: Failure>(
    program: &str,
    arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    execute: impl FnOnce(C) -> Result<(), E>,
) -> ExitCode {
    let command = match C::try_parse_from(arguments) {
        Ok(command) => command,
        Err(not_a_command) => {
            // A request for help is reported as an error too.
            let _ = not_a_command.print();
            return ExitCode::from(u8::try_from(not_a_command.exit_code()).unwrap_or(2));
        }
    };
    match execute(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{program}: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}
