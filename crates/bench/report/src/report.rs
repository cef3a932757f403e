//! Reports results as text, JSON and charts.

use std::io::{self, Write};

use serde::Serialize;

use crate::Error;

/// Where a command's results go. Text goes to stdout. With JSON, stdout holds that one value and
/// nothing else, and text goes to stderr.
#[derive(Debug)]
pub struct Report {
    json: bool,
}

impl Report {
    /// Creates the report of a command that prints JSON, or text.
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Prints a table, a note or progress.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Report`] if the stream cannot be written.
    pub fn text(&self, text: &str) -> Result<(), Error> {
        let written = if self.json { writeln!(io::stderr(), "{text}") } else { writeln!(io::stdout(), "{text}") };
        written.map_err(Error::Report)
    }

    /// Prints the command's result. Called once and last.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Report`] if the stream cannot be written.
    pub fn result<T: Serialize + ?Sized>(&self, result: &T) -> Result<(), Error> {
        if !self.json {
            return Ok(());
        }
        let mut line = serde_json::to_vec(result).map_err(|error| Error::Report(error.into()))?;
        line.push(b'\n');
        io::stdout().write_all(&line).map_err(Error::Report)
    }
}
