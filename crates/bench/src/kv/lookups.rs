//! `kv lookups`: one-sided READs per lookup, as in DrTM's Table VI.

use std::sync::Arc;

use clap::{Args as ClapArgs, ValueEnum, value_parser};
use drtm_htm::NoHtm;
use drtm_rdma::{Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, block_on};
use serde::Serialize;

use super::{
    cluster::Cluster,
    cuckoo::Cuckoo,
    hopscotch::Hopscotch,
    scheme::{OWNER, Scheme},
};
use crate::{
    Error,
    report::{Report, prose, table},
};

/// Count the one-sided READs that find a key, for ours and for the papers' hash tables
///
/// Tables are built on one node of the in-process fabric, and every key is looked up from
/// another; each READ is counted, and each answer checked. For Zipf keys the counts are weighted
/// by how often each key would be looked up. The hottest key has 5 to 6 % of all lookups, so a
/// single hash seed decides much: the mean over seeds is what can be compared.
///
/// JSON: [{scheme, keys, occupancy, records, seeds, reads, reads_sd, published}]
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The hash tables
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SCHEME,...",
        default_values_t = [SchemeName::Cluster, SchemeName::Cuckoo, SchemeName::Hopscotch])]
    scheme: Vec<SchemeName>,

    /// How keys are looked up
    #[arg(long, value_enum, value_delimiter = ',', value_name = "KEYS,...", default_values_t = [Keys::Uniform, Keys::Zipf])]
    keys: Vec<Keys>,

    /// How full the tables are
    #[arg(long, value_parser = occupancy, value_delimiter = ',', value_name = "SHARE,...", default_values_t = [0.5, 0.75, 0.9])]
    occupancy: Vec<f64>,

    /// Keys in a table; rounded so that ours has a power of two of buckets
    #[arg(long, value_parser = value_parser!(u64).range(1_000..=100_000_000), default_value_t = 100_000, value_name = "N")]
    records: u64,

    /// Hash seeds to average over [default: 1 for uniform keys, 32 for Zipf]
    #[arg(long, value_parser = value_parser!(u64).range(1..=10_000), value_name = "N")]
    seeds: Option<u64>,
}

/// A hash table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum SchemeName {
    /// Ours: cluster chaining, eight keys to a bucket
    Cluster,
    /// Pilaf's: cuckoo hashing with three hashes
    Cuckoo,
    /// FaRM's: hopscotch hashing with a neighbourhood of eight
    Hopscotch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Keys {
    /// Each as often as any other
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
}

/// DrTM's Table VI, by scheme: for each kind of keys, at 50, 75 and 90 percent.
const PUBLISHED: [(SchemeName, [[f64; 3]; 2]); 3] = [
    (SchemeName::Cuckoo, [[1.348, 1.652, 1.956], [1.304, 1.712, 1.924]]),
    (SchemeName::Hopscotch, [[1.000, 1.011, 1.044], [1.000, 1.020, 1.040]]),
    (SchemeName::Cluster, [[1.008, 1.052, 1.100], [1.004, 1.039, 1.091]]),
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

impl Args {
    pub(crate) fn carry_out(&self, seed: u64, report: &Report) -> Result<(), Error> {
        let mut rows = Vec::new();
        for &scheme in &self.scheme {
            for &keys in &self.keys {
                for &occupancy in &self.occupancy {
                    rows.push(self.row(scheme, keys, occupancy, seed)?);
                }
            }
        }
        report.text(&text(&rows))?;
        report.result(&rows)
    }

    fn row(&self, scheme: SchemeName, keys: Keys, occupancy: f64, seed: u64) -> Result<Row, Error> {
        let seeds = self.seeds.unwrap_or(if keys == Keys::Zipf { 32 } else { 1 });
        // A table whose number of buckets is no power of two has buckets of two sizes, so to say; the papers' has not.
        let buckets = (self.records as f64 / (8.0 * occupancy)) as u64;
        let records = (buckets.next_power_of_two() as f64 * 8.0 * occupancy) as u64;
        let mut means = Vec::new();
        for number in 0..seeds {
            let seed = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let reads = match scheme {
                SchemeName::Cluster => reads::<Cluster>(records, occupancy, seed),
                SchemeName::Cuckoo => reads::<Cuckoo>(records, occupancy, seed),
                SchemeName::Hopscotch => reads::<Hopscotch>(records, occupancy, seed),
            }?;
            means.push(keys.mean(&reads));
        }
        let mean = means.iter().sum::<f64>() / seeds as f64;
        let variance = means.iter().map(|reads| (reads - mean).powi(2)).sum::<f64>() / (seeds.max(2) - 1) as f64;
        Ok(Row {
            scheme,
            keys,
            occupancy,
            records,
            seeds,
            reads: mean,
            reads_sd: variance.sqrt(),
            published: published(scheme, keys, occupancy),
        })
    }
}

impl Keys {
    /// READs per lookup, if the first key is the hottest.
    fn mean(self, reads: &[u64]) -> f64 {
        let weight = |rank: usize| match self {
            Self::Uniform => 1.0,
            Self::Zipf => (rank as f64 + 1.0).powf(-0.99),
        };
        let (sum, weights) = reads.iter().enumerate().fold((0.0, 0.0), |(sum, weights), (rank, reads)| {
            (sum + weight(rank) * *reads as f64, weights + weight(rank))
        });
        sum / weights
    }
}

/// The READs that it takes to find each of so many random keys, in random order.
fn reads<S: Scheme>(records: u64, occupancy: f64, seed: u64) -> Result<Vec<u64>, Error> {
    let mut random = fastrand::Rng::with_seed(seed);
    let keys: Vec<u64> = (0..records).map(|_| random.u64(1..)).collect();
    let region = Arc::new(Region::anonymous(NoHtm, (64 << 20) + records * 512)?);
    let mut scheme = S::build(&region, &keys, occupancy, seed)?;

    let fabric = LocalFabric::new(2, LocalConfig::perfect());
    fabric.register(OWNER, region)?;
    let endpoint = fabric.endpoint(NodeId(0))?;
    let peer = endpoint.during(Phase::Lookup);
    let counted = || endpoint.counters().total().reads;
    block_on(&endpoint, scheme.prepare(peer))?;
    let look_up = |key: u64, number: u64| {
        let before = counted();
        match block_on(&endpoint, scheme.find(peer, key))? {
            Some(found) if found == number => Ok(counted() - before),
            found => Err(Error::WrongAnswer { key, expected: number, found }),
        }
    };
    let look_all_up = || {
        keys.iter().enumerate().map(|(index, key)| look_up(*key, index as u64 + 1)).collect::<Result<Vec<u64>, Error>>()
    };
    // Once to learn where things are, which is not to be counted.
    look_all_up()?;
    let mut reads = look_all_up()?;
    // Which keys are hot has nothing to do with when they were inserted.
    random.shuffle(&mut reads);
    Ok(reads)
}

fn text(rows: &[Row]) -> String {
    let headers = ["scheme", "keys", "occupancy", "records", "seeds", "READs per lookup", "deviation", "published"];
    let cells = rows.iter().map(|row| {
        vec![
            format!("{:?}", row.scheme).to_lowercase(),
            format!("{:?}", row.keys).to_lowercase(),
            format!("{:.0} %", row.occupancy * 100.0),
            row.records.to_string(),
            row.seeds.to_string(),
            format!("{:.3}", row.reads),
            if row.seeds > 1 { format!("{:.3}", row.reads_sd) } else { String::new() },
            row.published.map_or_else(String::new, |reads| format!("{reads:.3}")),
        ]
    });
    let note = "READs counted on the in-process fabric, of keys that are there; published: DrTM, Table VI. Every answer was \
                checked. The published Zipf values come from one hash seed each.";
    format!("{}\n\n{}\n", table(&headers, 2, cells), prose(note))
}
