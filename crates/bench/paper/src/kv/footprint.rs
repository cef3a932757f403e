//! `kv footprint`: memory per record, as the operating system reports it.

use std::process::{Command, Stdio};

use clap::{Args as ClapArgs, value_parser};
use drtm_drive::memory::resident;
use drtm_report::{Report, prose, table};
use serde::{Deserialize, Serialize};

use super::{Fill, Key, MapName, keys::key_bytes};
use crate::Error;

/// Measure the memory per record
///
/// Fills one map with records of 100 bytes in a process of its own, and measures the process's
/// resident set before and after (/proc/self/statm). `region` is the memory allocated from the
/// store's region, of which all but the last pages are resident.
///
/// JSON: {engine, records, key_bytes, bytes_per_record, region_bytes_per_record}
#[derive(Debug, ClapArgs)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The map
    #[arg(long, value_enum, default_value_t = MapName::DrtmHash, value_name = "ENGINE")]
    engine: MapName,

    /// Records
    #[arg(long, value_parser = value_parser!(u64).range(1_000..=1_000_000_000), default_value_t = 10_000_000, value_name = "N")]
    records: u64,

    /// Bytes of a key: numbers of 8, or strings of 32
    #[arg(long, value_parser = key_bytes(), default_value = "8", value_name = "N")]
    key_bytes: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Footprint {
    engine: String,
    records: u64,
    key_bytes: u32,
    bytes_per_record: f64,
    region_bytes_per_record: Option<f64>,
}

impl Args {
    pub(crate) fn execute(&self, report: &Report) -> Result<(), Error> {
        let footprint = match self.key_bytes {
            u64::BYTES => self.measure::<u64>(),
            _ => self.measure::<[u8; 32]>(),
        }?;
        let region = footprint.region_bytes_per_record.map_or_else(String::new, |bytes| format!("{bytes:.1}"));
        let row = vec![
            footprint.engine.clone(),
            self.records.to_string(),
            self.key_bytes.to_string(),
            format!("{:.1}", footprint.bytes_per_record),
            region,
        ];
        let headers = ["engine", "records", "key bytes", "bytes per record", "region"];
        let note = "Resident memory, filled less empty, over records; values have 100 bytes.";
        report.text(&format!("{}\n\n{}\n", table(&headers, 1, [row]), prose(note)))?;
        Ok(report.result(&footprint)?)
    }

    fn measure<K: Fill>(&self) -> Result<Footprint, Error> {
        let before = resident()?;
        let subject = K::subject(self.engine, self.records)?;
        let bytes = resident()?.saturating_sub(before);
        let per_record = |bytes: u64| bytes as f64 / self.records as f64;
        Ok(Footprint {
            engine: self.engine.name(),
            records: self.records,
            key_bytes: self.key_bytes,
            bytes_per_record: per_record(bytes),
            region_bytes_per_record: subject.taken().map(per_record),
        })
    }
}

/// Measures a map in another process: this program, run with another command.
pub(super) fn in_a_process_of_its_own(map: MapName, records: u64, key_bytes: u32) -> Result<f64, Error> {
    let failed = |why: String| drtm_drive::Error::Child { command: "kv footprint", why };
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let output = Command::new(program)
        .args(["kv", "footprint", "--json", "--engine", &map.name()])
        .args(["--records", &records.to_string(), "--key-bytes", &key_bytes.to_string()])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim_end())).into());
    }
    let footprint: Footprint = serde_json::from_slice(&output.stdout).map_err(|error| failed(error.to_string()))?;
    Ok(footprint.bytes_per_record)
}
