//! What is seen of a run while it lasts: a bar on stderr, where that is a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// A bar, which goes away when it is dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    pub(crate) fn new(what: &'static str, length: u64) -> Self {
        let bar = ProgressBar::new(length).with_prefix(what);
        // The template is a constant; the default one would do as well.
        if let Ok(style) = ProgressStyle::with_template("{prefix} [{bar:40}] {percent:>3} %  {msg}") {
            bar.set_style(style.progress_chars("=> "));
        }
        Self(bar)
    }

    /// For what has no length.
    pub(crate) fn spinner(what: &'static str) -> Self {
        let bar = ProgressBar::new_spinner().with_message(what);
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    pub(crate) fn show(&self, position: u64, message: &str) {
        self.0.set_position(position);
        self.0.set_message(message.to_owned());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
