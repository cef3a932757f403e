//! Results of figures, as they are kept in files.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{super::panel::Row, origin::Origin};
use crate::Error;

/// The version of the format.
const FORMAT: u32 = 1;

/// Figures, in the order in which they were made.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Results {
    format: u32,
    pub(super) figures: Vec<Outcome>,
}

/// What became of a figure's panel.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Outcome {
    pub(super) figure: String,
    /// Where the numbers come from.
    pub(super) source: String,
    pub(super) origin: Origin,
    /// What went wrong, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) failure: Option<String>,
    pub(super) rows: Vec<Row>,
}

/// A file is what `report --save` writes, or what `paper --json` prints.
#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Results(Results),
    Rows(Vec<Row>),
}

impl Results {
    pub(super) fn new() -> Self {
        Self { format: FORMAT, figures: Vec::new() }
    }

    /// Reads files. Of a figure that several have, the last counts.
    pub(super) fn read(paths: &[impl AsRef<Path>]) -> Result<Self, Error> {
        let mut all = Self::new();
        for path in paths.iter().map(AsRef::as_ref) {
            let unusable = |why: String| Error::Results { path: path.to_owned(), why };
            let text = fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
            let read = Self::parse(&text).map_err(unusable)?;
            for outcome in read.figures {
                match all.figures.iter_mut().find(|other| other.figure == outcome.figure) {
                    Some(older) => *older = outcome,
                    None => all.figures.push(outcome),
                }
            }
        }
        Ok(all)
    }

    fn parse(text: &str) -> Result<Self, String> {
        match serde_json::from_str(text) {
            Ok(File::Results(results)) if results.format == FORMAT => Ok(results),
            Ok(File::Results(results)) => {
                Err(format!("its format is {}, and this program reads {FORMAT}", results.format))
            }
            Ok(File::Rows(rows)) => Ok(Self::of_rows(rows)),
            Err(error) => Err(format!("{error}: neither what `report --save` writes nor what `paper --json` prints")),
        }
    }

    fn of_rows(rows: Vec<Row>) -> Self {
        let mut results = Self::new();
        for row in rows {
            let place = results.figures.iter().position(|outcome| outcome.figure == row.figure);
            let place = place.unwrap_or_else(|| {
                let (figure, source) = (row.figure.to_string(), "from rows of drtm-bench paper --json".to_owned());
                results.figures.push(Outcome {
                    figure,
                    source,
                    origin: Origin::default(),
                    failure: None,
                    rows: Vec::new(),
                });
                results.figures.len() - 1
            });
            results.figures[place].rows.push(row);
        }
        results
    }

    /// Writes a file.
    pub(super) fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = serde_json::to_string_pretty(self).expect("rows have names and numbers");
        text.push('\n');
        fs::write(path, text).map_err(|error| drtm_report::Error::file(path)(error).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: &str = r#"[{"figure": "drtm-s86", "series": "DrTM", "x": 6, "y": 4.5, "published": 5.3,
        "kind": "simulated", "x_unit": "nodes", "y_unit": "ratio"},
        {"figure": "drtm-fig7a", "series": "payment", "x": null, "y": null, "published": null,
        "kind": "unavailable", "x_unit": null, "y_unit": "pieces", "why": "no"}]"#;

    #[test]
    fn rows_and_results_are_read_and_come_back() {
        let results = Results::parse(ROWS).expect("rows");
        assert_eq!(
            results.figures.iter().map(|outcome| &*outcome.figure).collect::<Vec<_>>(),
            ["drtm-s86", "drtm-fig7a"]
        );
        let text = serde_json::to_string(&results).expect("text");
        let again = serde_json::to_string(&Results::parse(&text).expect("results")).expect("text");
        assert_eq!(text, again);
    }

    #[test]
    fn what_is_not_results_is_refused() {
        for text in ["", "{}", "7", r#"{"format": 2, "figures": []}"#, r#"[{"figure": 7}]"#] {
            assert!(Results::parse(text).is_err(), "{text}");
        }
        assert!(Results::parse(r#"{"format": 2, "figures": []}"#).expect_err("newer").contains("format is 2"));
    }
}
