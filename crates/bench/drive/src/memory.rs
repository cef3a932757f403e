//! Memory use, as the operating system reports it.

use std::fs;

use crate::Error;

/// Returns this process's resident bytes.
pub fn resident() -> Result<u64, Error> {
    let pages = number_in("/proc/self/statm", |text| text.split_whitespace().nth(1))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// Returns the bytes of memory that are available.
pub fn available() -> Result<u64, Error> {
    Ok(kib_in("/proc/meminfo", "MemAvailable:")? << 10)
}

/// Returns this process's peak resident bytes.
pub fn peak() -> Result<u64, Error> {
    Ok(kib_in("/proc/self/status", "VmHWM:")? << 10)
}

fn kib_in(path: &'static str, name: &str) -> Result<u64, Error> {
    number_in(path, |text| text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next())
}

fn number_in(path: &'static str, find: impl FnOnce(&str) -> Option<&str>) -> Result<u64, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Resident { path, source: Some(source) })?;
    find(&text).and_then(|number| number.parse().ok()).ok_or(Error::Resident { path, source: None })
}
