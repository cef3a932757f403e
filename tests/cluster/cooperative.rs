//! Logs in memory that outlives the process: a node dies at any moment, and what is left of its
//! transactions is whole or not there, and free. The cases are those of Fig. 11 of DrTM.

mod deaths;
mod histories;
mod killed;
mod restarts;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::bed::Rings;

/// A directory of logs, which is removed at the end.
pub(crate) struct Memory(PathBuf);

impl Memory {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Relaxed);
        let directory = std::env::temp_dir().join(format!("drtm-memory-{}-{number}", std::process::id()));
        // What a process of this number has left.
        let _ = fs::remove_dir_all(&directory);
        Self(directory)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn rings(&self) -> Rings {
        let path = self.0.to_str().expect("plain").to_owned();
        Rings { memory: Some(path.leak()), ..Rings::default() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
