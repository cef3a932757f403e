//! `kv speed`: measures the store's tables and other maps in one run.

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::rates::{Rates, interleave};
use drtm_report::{Report, name_of, prose, table};
use serde::Serialize;

use super::{Draw, Fill, Key, MapName, Op, Style, Subject, Work, footprint, keys::key_bytes};
use crate::Error;

/// Measure the store's tables beside other maps
///
/// Values have 100 bytes, and are copied out. All maps are filled first. Then, in each round, every
/// map does a slice of the same work, so that other load on the machine affects all alike. A first
/// round is not counted. Keys are drawn ahead. All hash maps except the store's own have the same
/// hash function. Compare within one run.
///
/// The store's tree learns the addresses of keys from lookups: numbers together with others of
/// their leaf, strings one by one. It gets faster until it knows most keys. For this, --slice must
/// be about a tenth of --records for numbers, and half for strings.
///
/// Gets and updates are `dependent` or `overlapping`. Dependent: the next key depends on the
/// previous result, as in most transactions, so that an operation takes as long as its cache
/// misses. Overlapping: keys are known ahead, and the processor works on several at once. For
/// inserts, keys are always known ahead. Inserted keys are absent from a map that has all records,
/// and are removed again, untimed, before the next round. A scan copies --rows values.
///
/// Memory is measured in a process of its own for each map, as `kv footprint` does. An operation
/// that a map does not support is left out, and reported.
///
/// JSON: [{engine, op, style, threads, records, dist, key_bytes, ops_per_s: {min, median, max},
/// bytes_per_record}] (`style` is null except for gets and updates, `bytes_per_record`
/// with --no-memory)
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The maps; ratios are to the first [default: all]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINE,...", hide_default_value = true,
        default_values_t = MapName::ALL)]
    engine: Vec<MapName>,

    /// The operations
    #[arg(long, value_enum, value_delimiter = ',', value_name = "OP,...", default_values_t = [Op::Get, Op::Update])]
    op: Vec<Op>,

    /// How gets and updates depend on each other
    #[arg(long, value_enum, default_value_t = Style::Dependent)]
    style: Style,

    /// Concurrent threads
    #[arg(long, value_parser = value_parser!(u16).range(1..=1024), value_delimiter = ',', value_name = "N,...", default_values_t = [1])]
    threads: Vec<u16>,

    /// Records in a map
    #[arg(long, value_parser = value_parser!(u64).range(1_000..=1_000_000_000), default_value_t = 1_000_000, value_name = "N")]
    records: u64,

    /// The distribution of keys
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DIST,...", default_values_t = [Draw::Uniform])]
    dist: Vec<Draw>,

    /// Bytes of a key: numbers of 8, or strings of 32
    #[arg(long, value_parser = key_bytes(), default_value = "8", value_name = "N")]
    key_bytes: u32,

    /// Rows of a scan
    #[arg(long, value_parser = value_parser!(u16).range(1..), default_value_t = 100, value_name = "N")]
    rows: u16,

    /// Rounds
    #[arg(long, value_parser = value_parser!(u16).range(1..=10_000), default_value_t = 7, value_name = "N")]
    rounds: u16,

    /// Operations of each thread in a round; a hundredth of that for scans
    #[arg(long, value_parser = value_parser!(u32).range(100..=100_000_000), default_value_t = 200_000, value_name = "N")]
    slice: u32,

    /// Do not measure memory, which requires filling each map again
    #[arg(long)]
    no_memory: bool,
}

#[derive(Debug, Serialize)]
struct Row {
    engine: MapName,
    op: Op,
    style: Option<Style>,
    threads: usize,
    records: u64,
    dist: Draw,
    key_bytes: u32,
    ops_per_s: Rates,
    bytes_per_record: Option<f64>,
}

/// A map with its results.
struct Contender<K> {
    name: MapName,
    bytes_per_record: Option<f64>,
    subject: Box<dyn Subject<K>>,
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let rows = match self.key_bytes {
            u64::BYTES => self.rows::<u64>(seed),
            _ => self.rows::<[u8; 32]>(seed),
        }?;
        report.text(&self.text(&rows))?;
        Ok(report.result(&rows)?)
    }

    fn rows<K: Fill>(&self, seed: u64) -> Result<Vec<Row>, Error> {
        let contenders = self.contenders::<K>()?;
        let mut rows = Vec::new();
        for &dist in &self.dist {
            for &op in &self.op {
                for &threads in &self.threads {
                    rows.extend(self.group(&contenders, op, dist, usize::from(threads), seed)?);
                }
            }
        }
        Ok(rows)
    }

    /// Returns the maps that support any of the requested work, filled.
    fn contenders<K: Fill>(&self) -> Result<Vec<Contender<K>>, Error> {
        let able: Vec<MapName> = self.engine.iter().copied().filter(|name| self.refusal(*name).is_none()).collect();
        let Some(first) = self.engine.first().filter(|_| able.is_empty()) else { return self.fill(&able) };
        let why = self.refusal(*first).unwrap_or("is not for this");
        Err(Error::NotSupported { engine: first.name(), why })
    }

    /// Returns why a map supports none of the requested work; `None` if it supports some.
    fn refusal(&self, name: MapName) -> Option<&'static str> {
        let mut refusals = self.asked().map(|(op, threads)| name.refuses(op, threads, self.key_bytes));
        let first = refusals.next()??;
        refusals.all(|refusal| refusal.is_some()).then_some(first)
    }

    fn asked(&self) -> impl Iterator<Item = (Op, usize)> {
        self.op.iter().flat_map(|op| self.threads.iter().map(|threads| (*op, usize::from(*threads))))
    }

    fn fill<K: Fill>(&self, names: &[MapName]) -> Result<Vec<Contender<K>>, Error> {
        let mut footprints = Vec::with_capacity(names.len());
        for name in names {
            footprints.push(match self.no_memory {
                true => None,
                false => Some(footprint::in_a_process_of_its_own(*name, self.records, self.key_bytes)?),
            });
        }
        // Maps measured alone must also fit together: with swapping, a measurement means nothing.
        let needed = (footprints.iter().flatten().sum::<f64>() * self.records as f64) as usize;
        if !self.no_memory {
            let most = drtm_drive::memory::available()? as usize;
            if needed > most {
                return Err(Error::TooMuchMemory { needed_mib: needed >> 20, most_mib: most >> 20 });
            }
        }
        let filled = names.iter().zip(footprints).map(|(&name, bytes_per_record)| {
            let subject = K::subject(name, self.records)?;
            Ok(Contender { name, bytes_per_record, subject })
        });
        filled.collect()
    }

    /// Runs the rounds of one kind of work.
    fn group<K: Key>(
        &self,
        contenders: &[Contender<K>],
        op: Op,
        dist: Draw,
        threads: usize,
        seed: u64,
    ) -> Result<Vec<Row>, Error> {
        let able: Vec<_> =
            contenders.iter().filter(|map| map.name.refuses(op, threads, self.key_bytes).is_none()).collect();
        let prepare = |round: u16| self.work::<K>(op, dist, threads, u64::from(round), seed);
        let rates = interleave(self.rounds, &able, prepare, |map, work| {
            let operations: usize = work.keys.iter().map(Vec::len).sum();
            Ok::<_, Error>(operations as f64 / map.subject.run(work)?.as_secs_f64())
        })?;
        let row = |(map, rates): (&&Contender<K>, Rates)| Row {
            engine: map.name,
            op,
            style: matches!(op, Op::Get | Op::Update).then_some(self.style),
            threads,
            records: self.records,
            dist,
            key_bytes: self.key_bytes,
            ops_per_s: rates,
            bytes_per_record: map.bytes_per_record,
        };
        Ok(able.iter().zip(rates).map(row).collect())
    }

    /// Returns the work of all maps in a round.
    fn work<K: Key>(&self, op: Op, dist: Draw, threads: usize, round: u64, seed: u64) -> Work<K> {
        let count = if op == Op::Scan { self.slice.div_ceil(100) } else { self.slice } as usize;
        let keys = |thread: usize| {
            let part = round * threads as u64 + thread as u64;
            if op == Op::Insert {
                let first = self.records + part * count as u64;
                (first..first + count as u64).map(K::numbered).collect()
            } else {
                dist.keys(self.records, count, seed.wrapping_add((part + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
            }
        };
        Work { op, style: self.style, rows: usize::from(self.rows), keys: (0..threads).map(keys).collect() }
    }

    fn text(&self, rows: &[Row]) -> String {
        let mut text = String::new();
        for group in rows.chunk_by(|a, b| (a.op, a.threads, a.dist) == (b.op, b.threads, b.dist)) {
            text += &group_table(group);
            text += "\n\n";
        }
        for name in &self.engine {
            let mut refusals: Vec<_> =
                self.asked().filter_map(|(op, threads)| name.refuses(op, threads, self.key_bytes)).collect();
            refusals.dedup();
            for why in refusals {
                text += &prose(&format!("Left out: {} {why}.", name.name()));
                text.push('\n');
            }
        }
        let note = "Millions of operations a second: the median of the rounds, the least and the most. Bytes: resident memory per \
                    record, measured in a process of its own.";
        text + &prose(note) + "\n"
    }
}

/// Formats one kind of work, with a line for each map.
fn group_table(group: &[Row]) -> String {
    let [first, ..] = group else { return String::new() };
    let style = first.style.map_or_else(String::new, |style| format!("{} ", name_of(&style)));
    let work = format!("{style}{} {}", name_of(&first.op), name_of(&first.dist));
    let title = format!("{work}, {}, {} records", drtm_report::units::threads(first.threads), first.records);
    let headers = ["engine", "Mops/s", "least", "most", "ratio", "bytes"];
    let cells = group.iter().map(|row| {
        let Rates { min, median, max } = row.ops_per_s;
        let mega = |rate: f64| format!("{:.3}", rate / 1e6);
        vec![
            row.engine.name(),
            mega(median),
            mega(min),
            mega(max),
            format!("{:.2}", median / first.ops_per_s.median),
            row.bytes_per_record.map_or_else(String::new, |bytes| format!("{bytes:.1}")),
        ]
    });
    format!("{title}\n{}", table(&headers, 1, cells))
}
