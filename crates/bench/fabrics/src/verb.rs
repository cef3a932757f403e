//! What the command line calls verbs.

use clap::ValueEnum;
use serde::Serialize;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VerbName {
    /// One-sided READ
    Read,
    /// One-sided WRITE
    Write,
    /// COMPARE-AND-SWAP of a word
    Cas,
    /// FETCH-AND-ADD of a word
    Faa,
    /// A message and its reply
    Message,
}

impl VerbName {
    pub(crate) const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Cas, Self::Faa, Self::Message];

    /// Returns the bytes that it moves where it is told to move so many.
    pub(crate) fn bytes(self, bytes: usize) -> usize {
        match self {
            Self::Cas | Self::Faa => 8,
            Self::Read | Self::Write => bytes.max(8).next_multiple_of(8),
            Self::Message => bytes,
        }
    }
}
