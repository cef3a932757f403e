//! A progress bar on stderr, if that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, which disappears when it is dropped.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Shows a bar of this length.
    pub fn new(what: &'static str, length: u64) -> Self {
        let bar = ProgressBar::new(length).with_prefix(what);
        // The template is a valid constant; without it, the default template is used.
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:40}] {percent:>3} %  {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// Shows a spinner, for work without a known length.
    pub fn spinner(what: &'static str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Moves the bar by one.
    pub fn step(&self) {
        self.0.inc(1);
    }

    /// Moves the bar to a position, and shows a message beside it.
    pub fn show(&self, position: u64, message: &str) {
        self.0.set_position(position);
        self.0.set_message(message.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
