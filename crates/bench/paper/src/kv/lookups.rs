//! `kv lookups`: one-sided READs per lookup, as in DrTM's Table VI.

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_report::{Report, name_of, prose, table};
use serde::Serialize;

use super::{cached, cluster::Cluster, counting::Counting, cuckoo::Cuckoo, hopscotch::Hopscotch, scheme::Scheme};
use crate::Error;

/// Count the one-sided READs that find a key, in this store and in the papers' hash tables
///
/// Tables are built on one node of the in-process fabric, and every key is looked up from another.
/// Every READ is counted, and every answer checked. For Zipf keys the counts are weighted by the
/// frequency of each key. The hottest key has 5 to 6 % of all lookups, so a single hash seed
/// matters: compare the mean over seeds.
///
/// With a cache (cluster+cache), keys are drawn by their frequency: as many lookups as there are
/// keys with an empty cache (cold), then as many again (warm).
///
/// JSON: [{scheme, keys, occupancy, records, seeds, reads, reads_sd, published}], and for
/// cluster+cache also {cache_mb_per_20m, warm}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The hash tables
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SCHEME,...",
        default_values_t = [SchemeName::Cluster, SchemeName::Cuckoo, SchemeName::Hopscotch])]
    scheme: Vec<SchemeName>,

    /// The distribution of lookups
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KEYS,...", default_values_t = [Keys::Uniform, Keys::Zipf])]
    keys: Vec<Keys>,

    /// The occupancy of the tables
    #[arg(long, value_parser = occupancy, value_delimiter = ',', value_name = "SHARE,...", default_values_t = [0.5, 0.75, 0.9])]
    occupancy: Vec<f64>,

    /// Keys in a table; rounded so that this store's table has a power of two of buckets
    #[arg(long, value_parser = value_parser!(u64).range(1_000..=100_000_000), default_value_t = 100_000, value_name = "N")]
    records: u64,

    /// Bytes of each cache for 20 million keys, in millions; scaled down with the number of keys
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000), value_delimiter = ',', value_name = "MB,...", default_values_t = [20, 80, 320])]
    cache_mb: Vec<u64>,

    /// Hash seeds to average over [default: 1 for uniform keys, 32 for Zipf]
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000), value_name = "N")]
    seeds: Option<u64>,
}

/// A hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum SchemeName {
    /// This store: cluster chaining, eight keys to a bucket
    Cluster,
    /// This store, with a bucket cache at the peer
    #[value(name = "cluster+cache")]
    #[serde(rename = "cluster+cache")]
    ClusterCache,
    /// Pilaf's: cuckoo hashing with three hashes
    Cuckoo,
    /// FaRM's: hopscotch hashing with a neighbourhood of eight
    Hopscotch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Keys {
    /// All keys equally often
    Uniform,
    /// By a Zipf distribution with an exponent of 0.99
    Zipf,
}

#[derive(Debug, Serialize)]
struct Row {
    scheme: SchemeName,
    keys: Keys,
    occupancy: f64,
    records: u64,
    seeds: u64,
    reads: f64,
    reads_sd: f64,
    published: Option<f64>,
    #[serde(flatten)]
    cache: Option<CacheRow>,
}

/// Fields of rows with a cache.
#[derive(Clone, Copy, Debug, Serialize)]
struct CacheRow {
    cache_mb_per_20m: u64,
    warm: bool,
}

/// DrTM's Table VI, by scheme: for each distribution, at 50, 75 and 90 percent. With a cache, Zipf
/// keys take "≈ 0".
const PUBLISHED: [(SchemeName, [[f64; 3]; 2]); 4] = [
    (SchemeName::Cuckoo, [[1.348, 1.652, 1.956], [1.304, 1.712, 1.924]]),
    (SchemeName::Hopscotch, [[1.000, 1.011, 1.044], [1.000, 1.020, 1.040]]),
    (SchemeName::Cluster, [[1.008, 1.052, 1.100], [1.004, 1.039, 1.091]]),
    (SchemeName::ClusterCache, [[0.204, 0.475, 0.587], [0.0, 0.0, 0.0]]),
];

fn published(scheme: SchemeName, keys: Keys, occupancy: f64) -> Option<f64> {
    let column = [0.5, 0.75, 0.9].iter().position(|known| *known == occupancy)?;
    PUBLISHED.iter().find(|(name, _)| *name == scheme).map(|(_, values)| values[keys as usize][column])
}

fn occupancy(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.01..=0.95).contains(&share) => Ok(share),
        _ => Err("an occupancy is a number from 0.01 to 0.95".to_owned()),
    }
}

/// A value of DrTM's Table VI.
pub(crate) struct Lookup {
    pub(crate) scheme: &'static str,
    /// In percent.
    pub(crate) occupancy: usize,
    /// READs that find a key, on average.
    pub(crate) reads: f64,
}

/// Counts what Table VI does without a cache, for Zipf or uniform keys: in tables of about so many
/// records, over so many hash seeds.
pub(crate) fn table_6(is_zipf: bool, records: u64, seeds: u64, seed: u64) -> Result<Vec<Lookup>, Error> {
    let keys = if is_zipf { Keys::Zipf } else { Keys::Uniform };
    let none = Args {
        scheme: Vec::new(),
        keys: Vec::new(),
        occupancy: Vec::new(),
        records,
        cache_mb: Vec::new(),
        seeds: Some(seeds),
    };
    let mut lookups = Vec::new();
    for (scheme, name) in [
        (SchemeName::Cluster, "cluster chaining"),
        (SchemeName::Cuckoo, "cuckoo hashing"),
        (SchemeName::Hopscotch, "hopscotch hashing"),
    ] {
        for occupancy in [50, 75, 90] {
            let rows = none.rows(scheme, keys, occupancy as f64 / 100.0, seed)?;
            lookups.extend(rows.iter().map(|row| Lookup { scheme: name, occupancy, reads: row.reads }));
        }
    }
    Ok(lookups)
}

impl Args {
    pub(crate) fn execute(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let mut rows = Vec::new();
        for &scheme in &self.scheme {
            for &keys in &self.keys {
                for &occupancy in &self.occupancy {
                    rows.extend(self.rows(scheme, keys, occupancy, seed)?);
                }
            }
        }
        report.text(&text(&rows))?;
        Ok(report.result(&rows)?)
    }

    /// Returns a row, or with a cache two rows for each size.
    fn rows(&self, scheme: SchemeName, keys: Keys, occupancy: f64, seed: u64) -> Result<Vec<Row>, Error> {
        let seeds = self.seeds.unwrap_or(if keys == Keys::Zipf { 32 } else { 1 });
        // With a number of buckets that is no power of two, some buckets would be twice as large as
        // others; the papers' are not.
        let buckets = (self.records as f64 / (8.0 * occupancy)) as u64;
        let records = (buckets.next_power_of_two() as f64 * 8.0 * occupancy) as u64;
        // For each seed, the mean READs of all rows.
        let mut means = Vec::new();
        for number in 0..seeds {
            let seed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            means.push(match scheme {
                SchemeName::Cluster => vec![keys.mean(&reads::<Cluster>(records, occupancy, seed)?)],
                SchemeName::Cuckoo => vec![keys.mean(&reads::<Cuckoo>(records, occupancy, seed)?)],
                SchemeName::Hopscotch => vec![keys.mean(&reads::<Hopscotch>(records, occupancy, seed)?)],
                SchemeName::ClusterCache => {
                    let sizes: Vec<u64> = self.cache_mb.iter().map(|mb| mb * records / 20).collect();
                    let reads = cached::reads(records, occupancy, seed, &sizes, |rank| keys.weight(rank))?;
                    reads.into_iter().flat_map(|reads| [reads.cold, reads.warm]).collect()
                }
            });
        }
        let with_cache = self.cache_mb.iter().flat_map(|mb| [false, true].map(|warm| (*mb, warm)));
        let caches: Vec<Option<CacheRow>> = match scheme {
            SchemeName::ClusterCache => {
                with_cache.map(|(cache_mb_per_20m, warm)| Some(CacheRow { cache_mb_per_20m, warm })).collect()
            }
            _ => vec![None],
        };
        let row = |(number, cache): (usize, Option<CacheRow>)| {
            let of_seeds = || means.iter().map(|of_rows: &Vec<f64>| of_rows[number]);
            let mean = of_seeds().sum::<f64>() / seeds as f64;
            let variance = of_seeds().map(|reads| (reads - mean).powi(2)).sum::<f64>() / (seeds.max(2) - 1) as f64;
            let published = published(scheme, keys, occupancy);
            Row { scheme, keys, occupancy, records, seeds, reads: mean, reads_sd: variance.sqrt(), published, cache }
        };
        Ok(caches.into_iter().enumerate().map(row).collect())
    }
}

impl Keys {
    /// Returns a key's frequency by its rank.
    fn weight(self, rank: usize) -> f64 {
        match self {
            Self::Uniform => 1.0,
            Self::Zipf => (rank as f64 + 1.0).powf(-0.99),
        }
    }

    /// Returns READs per lookup. The first key is the hottest.
    fn mean(self, reads: &[u64]) -> f64 {
        let (sum, weights) = reads.iter().enumerate().fold((0.0, 0.0), |(sum, weights), (rank, reads)| {
            (sum + self.weight(rank) * *reads as f64, weights + self.weight(rank))
        });
        sum / weights
    }
}

/// Returns the READs that find each of `records` random keys, in random order.
fn reads<S: Scheme>(records: u64, occupancy: f64, seed: u64) -> Result<Vec<u64>, Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut reads = Counting::<S>::new(records, occupancy, &mut random, seed)?.look_all_up()?;
    // Hot keys are independent of the order of insertion.
    random.shuffle(&mut reads);
    Ok(reads)
}

impl Row {
    fn name(&self) -> String {
        let scheme = name_of(&self.scheme);
        match self.cache {
            None => scheme,
            Some(CacheRow { cache_mb_per_20m, warm }) => {
                format!("{scheme}, {cache_mb_per_20m} MB, {}", if warm { "warm" } else { "cold" })
            }
        }
    }
}

fn text(rows: &[Row]) -> String {
    let headers = ["scheme", "keys", "occupancy", "records", "seeds", "READs per lookup", "deviation", "published"];
    let cells = rows.iter().map(|row| {
        vec![
            row.name(),
            format!("{:?}", row.keys).to_lowercase(),
            format!("{:.0} %", row.occupancy * 100.0),
            row.records.to_string(),
            row.seeds.to_string(),
            format!("{:.3}", row.reads),
            if row.seeds > 1 { format!("{:.3}", row.reads_sd) } else { String::new() },
            match row.published {
                None => String::new(),
                Some(0.0) => "≈ 0".to_owned(),
                Some(reads) => format!("{reads:.3}"),
            },
        ]
    });
    let note = "READs counted on the in-process fabric, of keys that are there; published: DrTM, Table VI. Every answer was \
                checked. The published Zipf values come from one hash seed each.";
    let of_caches = "Caches are of so many MB for 20 million keys. Cold: from empty, over as many lookups as there are keys; warm: over \
                     as many more. The size and the warming up of the published cache are unknown, and its Zipf values said to be about 0.";
    let table = table(&headers, 2, cells);
    match rows.iter().any(|row| row.cache.is_some()) {
        true => format!("{table}\n\n{}\n\n{}\n", prose(note), prose(of_caches)),
        false => format!("{table}\n\n{}\n", prose(note)),
    }
}
