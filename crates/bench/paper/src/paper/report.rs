//! `report`: what is reproduced of the papers, on one page.

mod claims;
mod markdown;
mod origin;
mod page;
mod results;
mod verdict;

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use clap::{ArgGroup, Args as ClapArgs};
use drtm_report::{Error as Unwritten, Failure, Report};

use self::{
    claims::known,
    origin::Origin,
    results::{Outcome, Results},
    verdict::{Comparison, Counts, Verdict, compare},
};
use super::{
    Selection,
    effort::{Effort, EffortArgs},
    panel::{Panel, Study},
    studies,
};
use crate::{Error, htm::EngineName};

/// Show what is reproduced of the papers: every figure beside the published one, on one page
///
/// Makes all figures of `drtm-bench paper`, or takes them from files, and judges each: exact,
/// within 25 %, in the published order only, or off. The page is one file of HTML without scripts,
/// and fetches nothing.
///
/// JSON: {figures, exact, within, order_only, off, unavailable, unpublished}: how many panels there
/// are, and how many have each verdict.
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment, after_help = AFTER_HELP)]
#[command(group = ArgGroup::new("written").required(true).multiple(true).args(["out", "save", "markdown"]))]
pub struct Args {
    /// Write the page into this file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Take results from files, and measure nothing: those of --save, and rows of `paper --json`.
    /// Of a figure that several have, the last counts
    #[arg(
        long,
        value_name = "FILE,...",
        value_delimiter = ',',
        conflicts_with_all = ["only", "engine", "threads", "secs", "rounds", "quick", "full", "vary", "virtual_us",
            "phases", "coroutines", "seeds"]
    )]
    from: Vec<PathBuf>,

    /// Write the results into this file, for --from
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,

    /// Write the published values and ours into this file of Markdown, between its two marks
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,

    /// Only these figures, or panels
    #[arg(long, value_parser = Selection::parser(), value_delimiter = ',', value_name = "FIGURE,...",
        hide_possible_values = true)]
    only: Vec<Selection>,

    /// What runs the regions, in studies of these
    #[arg(long, value_enum, default_value_t, value_name = "ENGINE")]
    engine: EngineName,

    #[command(flatten)]
    effort: EffortArgs,
}

const AFTER_HELP: &str = "\
Examples:
  drtm-bench report --quick --out report.html                        at most three minutes; databases are tiny
  drtm-bench report --virtual-us 1000 --out report.html --save results.json
  drtm-bench report --only drtmh-fig14 --full --save large.json      one figure, for hours
  drtm-bench report --from results.json,large.json --out report.html";

/// How long a quick run begins studies: the last one ends within three minutes.
const QUICK: Duration = Duration::from_secs(150);

/// A panel with its results, and what is made of them.
struct Shown<'r> {
    panel: &'static Panel,
    outcome: &'r Outcome,
    comparisons: Vec<Comparison>,
    verdict: Verdict,
}

impl Args {
    /// Makes the figures, or reads them, and writes the page.
    ///
    /// # Errors
    ///
    /// Returns an error if a file cannot be read or written, or a study has failed. What others
    /// found is written first.
    pub fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let (results, failure) = match &self.from[..] {
            [] => self.make(seed, report)?,
            from => (Results::read(from)?, None),
        };
        let shown = shown(&results)?;
        let mut counts = Counts::default();
        shown.iter().for_each(|shown| counts.add(shown.verdict));
        if let Some(path) = &self.save {
            results.write(path)?;
        }
        if let Some(path) = &self.out {
            std::fs::write(path, page::page(&shown, &counts)).map_err(Unwritten::file(path))?;
        }
        if let Some(path) = &self.markdown {
            let text = std::fs::read_to_string(path).map_err(|error| unusable(path, error.to_string()))?;
            let text = markdown::between_marks(&text, &markdown::table(&shown)).map_err(|why| unusable(path, why))?;
            std::fs::write(path, text).map_err(Unwritten::file(path))?;
        }
        let told = Verdict::ALL.map(|verdict| format!("{} {}", counts.of(verdict), verdict.name()));
        report.text(&format!("{} panels: {}", counts.figures, told.join(", ")))?;
        report.result(&counts)?;
        failure.map_or(Ok(()), Err)
    }

    /// Makes the figures. Also returns the first error; other studies go on.
    fn make(&self, seed: u64, report: &Report) -> Result<(Results, Option<Error>), Error> {
        let is_wanted =
            |panel: &Panel| self.only.is_empty() || self.only.iter().any(|selection| selection.includes(panel));
        let effort = Effort::new(&self.effort, self.engine, seed);
        let here = Origin::here(self.effort.is_quick());
        let (mut results, mut failure, started) = (Results::new(), None, Instant::now());
        for study in studies().filter(|study| study.panels.iter().any(&is_wanted)) {
            let names: Vec<&str> = study.panels.iter().map(|panel| panel.name).collect();
            if here.is_quick && started.elapsed() > QUICK {
                report.text(&format!("{}: left out, so that this remains a quick run", names.join(", ")))?;
                continue;
            }
            let (begun, measured) = (Instant::now(), (study.measure)(&effort));
            let seconds = (begun.elapsed().as_secs_f64() * 10.0).round() / 10.0;
            report.text(&format!("{}: {seconds} s", names.join(", ")))?;
            let outcomes = self.outcomes(study, measured, seed, &Origin { seconds, ..here.clone() }, &mut failure)?;
            results
                .figures
                .extend(outcomes.into_iter().filter(|(panel, _)| is_wanted(panel)).map(|(_, outcome)| outcome));
        }
        Ok((results, failure))
    }

    fn outcomes(
        &self,
        study: &'static Study,
        measured: Result<super::panel::Measured, Error>,
        seed: u64,
        here: &Origin,
        failure: &mut Option<Error>,
    ) -> Result<Vec<(&'static Panel, Outcome)>, Error> {
        let (curves, source, failed) = match measured {
            Ok(measured) => (measured.curves, measured.source, measured.failure),
            Err(error) if error.is_closed_pipe() => return Err(error),
            Err(error) => (study.panels.iter().map(|_| Vec::new()).collect(), "failed".to_owned(), Some(error)),
        };
        let told = failed.as_ref().map(ToString::to_string);
        let outcome = |(panel, curves): (&'static Panel, Vec<_>)| {
            let origin = Origin { command: self.command(panel, seed), ..here.clone() };
            let (figure, source, failure) = (panel.name.to_owned(), source.clone(), told.clone());
            (panel, Outcome { figure, source, origin, failure, rows: panel.rows(&curves) })
        };
        let outcomes = study.panels.iter().zip(curves).map(outcome).collect();
        *failure = failure.take().or(failed);
        Ok(outcomes)
    }

    /// Returns the command that makes a figure as it is made here.
    fn command(&self, panel: &Panel, seed: u64) -> String {
        let engine =
            (self.engine != EngineName::default()).then(|| format!("--engine {}", drtm_report::name_of(&self.engine)));
        let seed = (seed != 0).then(|| format!("--seed {seed}"));
        let words = [Some(format!("drtm-bench paper {}", panel.name)), engine, Some(self.effort.written()), seed];
        words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }
}

fn unusable(path: &std::path::Path, why: String) -> Error {
    Error::Results { path: path.to_owned(), why }
}

/// Returns what is shown of results, in the order of the papers.
fn shown(results: &Results) -> Result<Vec<Shown<'_>>, Error> {
    let panels = || studies().flat_map(|study| study.panels);
    if let Some(strange) = results.figures.iter().find(|outcome| panels().all(|panel| panel.name != outcome.figure)) {
        return Err(Error::Strange { figure: strange.figure.clone() });
    }
    let shown = |panel: &'static Panel| {
        let outcome = results.figures.iter().find(|outcome| outcome.figure == panel.name)?;
        let comparisons = compare(panel, &outcome.rows, known(panel.name).claims);
        let verdict = match outcome.rows.is_empty() {
            true => Verdict::Unavailable,
            false => Verdict::of(&comparisons),
        };
        Some(Shown { panel, outcome, comparisons, verdict })
    };
    Ok(panels().filter_map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The results that `docs/figures.md` shows.
    const RESULTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/figures.json");

    fn results() -> Results {
        Results::read(&[RESULTS]).expect("results")
    }

    #[test]
    fn what_is_known_is_of_panels_and_of_their_series() {
        let results = results();
        for known in claims::KNOWN {
            assert!(studies().flat_map(|study| study.panels).any(|panel| panel.name == known.panel), "{}", known.panel);
            let Some(outcome) = results.figures.iter().find(|outcome| outcome.figure == known.panel) else { continue };
            let series: Vec<&str> = known
                .claims
                .iter()
                .flat_map(|claim| match *claim {
                    claims::Claim::Ratio { of, over, .. } => vec![of, over],
                    claims::Claim::Order { best_first, .. } => best_first.concat(),
                })
                .collect();
            for name in series {
                assert!(outcome.rows.iter().any(|row| row.series == name), "{}: {name}", known.panel);
            }
        }
    }

    #[test]
    fn the_table_of_the_documentation_is_that_of_its_results() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/figures.md");
        let text = std::fs::read_to_string(path).expect("the page");
        let results = results();
        let table = markdown::table(&shown(&results).expect("figures"));
        let expected = markdown::between_marks(&text, &table).expect("marks");
        let hint = "drtm-bench report --from docs/figures.json --markdown docs/figures.md";
        assert!(text == expected, "docs/figures.md is not what its results are: {hint}");
    }

    #[test]
    fn a_figure_of_another_version_is_refused() {
        let mut results = results();
        results.figures[0].figure = "dbx-fig99".to_owned();
        let refusal = shown(&results).err().expect("refused").to_string();
        assert!(refusal.contains("dbx-fig99"), "{refusal}");
    }
}
