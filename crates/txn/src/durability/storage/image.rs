//! A simulated disk, for tests: it separates synced from unsynced writes, can crash and fail at any
//! call, and can be full or read-only.
//!
//! A crash keeps what was synced, and of the rest what the test chooses. Each sector of an unsynced
//! write is present, missing, zero or torn, independently of others, so that writes are reordered.
//! Each unsynced name is the old one or the new one.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use parking_lot::Mutex;

use super::{Access, DirectoryLock, Storage, StoredFile};

/// The bytes that a disk writes atomically.
const SECTOR: usize = 512;

/// A fault in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops. This call has taken effect in part, and every later one fails.
    Crash,
    /// There is no space. The call has no effect.
    NoSpace,
    /// The device fails. A failed sync loses the writes that it should make durable, though they
    /// can still be read.
    Device,
    /// A write writes only the first half of its bytes, without an error. Other calls succeed.
    Short,
}

/// A simulated disk. Clones share one disk.
#[derive(Clone, Debug, Default)]
pub struct Image {
    disk: Arc<Mutex<Disk>>,
}

type Number = usize;

#[derive(Clone, Debug, Default)]
struct Disk {
    files: Vec<Content>,
    /// The present names, and the durable ones.
    names: BTreeMap<String, Number>,
    durable: BTreeMap<String, Number>,
    calls: u64,
    fault: Option<(u64, Fault)>,
    has_crashed: bool,
    /// The holders of the directory's lock, if it is locked.
    locked: Option<Locks>,
    /// The most bytes that its files can have together, if there is a limit.
    most: Option<u64>,
    is_read_only: bool,
    /// Whether reserved space has the old content of a removed file.
    recycles: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Locks {
    Writer,
    Readers(u32),
}

#[derive(Clone, Debug, Default)]
struct Content {
    now: Vec<u8>,
    synced: Vec<u8>,
    /// Writes since the last sync.
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Writes that a failed sync has lost: no later sync makes them durable.
    lost: Vec<(usize, Vec<u8>)>,
}

impl Image {
    /// Returns an empty disk whose reserved space is not zero, but has the old content of a removed
    /// file.
    #[must_use]
    pub fn recycling() -> Self {
        Self { disk: Arc::new(Mutex::new(Disk { recycles: true, ..Disk::default() })) }
    }

    /// Makes the call with this number fail, counted from the disk's beginning.
    pub fn fail_at(&self, call: u64, fault: Fault) {
        self.disk.lock().fault = Some((call, fault));
    }

    /// Limits the bytes that all files can have together. Calls that would exceed it fail: the disk
    /// is full. `None` removes the limit.
    pub fn limit(&self, most: Option<u64>) {
        self.disk.lock().most = most;
    }

    /// Makes the disk read-only, or writable again.
    pub fn read_only(&self, is_read_only: bool) {
        self.disk.lock().is_read_only = is_read_only;
    }

    /// Returns the bytes that all files have together.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.disk.lock().used()
    }

    /// Returns the number of calls so far.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.disk.lock().calls
    }

    /// Returns the disk as it is after a crash. `choose` returns a number below its argument.
    #[must_use]
    pub fn after_crash(&self, choose: &mut dyn FnMut(u64) -> u64) -> Self {
        let disk = self.disk.lock();
        let mut names = disk.durable.clone();
        let all: BTreeSet<_> = disk.names.keys().chain(disk.durable.keys()).collect();
        for name in all {
            if choose(2) == 0 {
                match disk.names.get(name) {
                    Some(number) => names.insert(name.clone(), *number),
                    None => names.remove(name),
                };
            }
        }
        let files = disk.files.iter().map(|content| content.after_crash(choose)).collect();
        Self::of(files, names, disk.recycles)
    }

    /// Returns the disk as it is after the process was killed on a running machine.
    #[must_use]
    pub fn after_kill(&self) -> Self {
        let disk = self.disk.lock();
        let whole = |content: &Content| Content { synced: content.now.clone(), ..content.clone() };
        Self::of(disk.files.iter().map(whole).collect(), disk.names.clone(), disk.recycles)
    }

    fn of(files: Vec<Content>, names: BTreeMap<String, Number>, recycles: bool) -> Self {
        let fresh =
            |content: Content| Content { now: content.synced.clone(), synced: content.synced, ..Content::default() };
        let files = files.into_iter().map(fresh).collect();
        let disk = Disk { files, durable: names.clone(), names, recycles, ..Disk::default() };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// Changes the content of a file, as a failing device does.
    ///
    /// # Panics
    ///
    /// Panics if there is no such file.
    pub fn damage(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut disk = self.disk.lock();
        let number = disk.names[name];
        let content = &mut disk.files[number];
        change(&mut content.now);
        content.synced.clone_from(&content.now);
    }

    /// Runs a call, or makes it fail.
    fn call<T>(&self, call: impl FnOnce(&mut Disk, Option<Fault>) -> io::Result<T>) -> io::Result<T> {
        let mut disk = self.disk.lock();
        if disk.has_crashed {
            return Err(io::Error::other("the machine has stopped"));
        }
        let number = disk.calls;
        disk.calls += 1;
        let fault = disk.fault.filter(|(at, _)| *at == number).map(|(_, fault)| fault);
        match fault {
            Some(Fault::NoSpace) => Err(io::ErrorKind::StorageFull.into()),
            Some(Fault::Crash) => {
                disk.has_crashed = true;
                call(&mut disk, fault).and(Err(io::Error::other("the machine has stopped")))
            }
            fault => call(&mut disk, fault),
        }
    }
}

impl Disk {
    fn used(&self) -> u64 {
        self.names.values().map(|number| self.files[*number].now.len() as u64).sum()
    }

    /// Checks that the disk can be changed.
    fn check_writable(&self) -> io::Result<()> {
        if self.is_read_only { Err(io::ErrorKind::ReadOnlyFilesystem.into()) } else { Ok(()) }
    }

    /// Checks that the disk can be changed, and has room for so many more bytes.
    fn change(&self, more: usize) -> io::Result<()> {
        self.check_writable()?;
        match self.most {
            Some(most) if self.used() + more as u64 > most => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }

    /// Checks that a file can have this length.
    fn grow(&self, number: Number, length: usize) -> io::Result<()> {
        self.change(length.saturating_sub(self.files[number].now.len()))
    }

    /// Returns the content of the file that was removed last, if reserved space has it.
    fn recycled(&self) -> Option<Vec<u8>> {
        let is_removed = |number: &Number| !self.names.values().any(|named| named == number);
        let removed = (0..self.files.len()).rev().find(|number| self.recycles && is_removed(number))?;
        Some(self.files[removed].now.clone())
    }
}

fn device() -> io::Error {
    io::Error::other("the device has failed")
}

impl Content {
    fn after_crash(&self, choose: &mut dyn FnMut(u64) -> u64) -> Self {
        let mut bytes = self.synced.clone();
        if choose(2) == 0 {
            bytes.resize(self.now.len(), 0);
        }
        for (offset, write) in self.lost.iter().chain(&self.unsynced) {
            let mut at = *offset;
            let mut rest = &write[..];
            while !rest.is_empty() {
                let (sector, behind) = rest.split_at(rest.len().min(SECTOR - at % SECTOR));
                let torn = sector.len().min(choose(SECTOR as u64) as usize);
                match choose(6) {
                    0..3 => put(&mut bytes, at, sector),
                    3 => put(&mut bytes, at, &vec![0; sector.len()]),
                    4 => put(&mut bytes, at, &sector[..torn]),
                    _ => {}
                }
                at += sector.len();
                rest = behind;
            }
        }
        Self { synced: bytes, ..Self::default() }
    }
}

fn put(bytes: &mut Vec<u8>, at: usize, some: &[u8]) {
    if bytes.len() < at + some.len() {
        bytes.resize(at + some.len(), 0);
    }
    bytes[at..at + some.len()].copy_from_slice(some);
}

#[derive(Debug)]
struct Locked(Image);

impl DirectoryLock for Locked {}

impl Drop for Locked {
    fn drop(&mut self) {
        let locked = &mut self.0.disk.lock().locked;
        *locked = match *locked {
            Some(Locks::Readers(readers)) if readers > 1 => Some(Locks::Readers(readers - 1)),
            _ => None,
        };
    }
}

impl Storage for Image {
    fn name(&self) -> String {
        "a simulated disk".to_owned()
    }

    fn lock(&self, access: Access) -> io::Result<Result<Box<dyn DirectoryLock>, String>> {
        let mut disk = self.disk.lock();
        disk.locked = match (access, disk.locked) {
            (Access::Write, None) if disk.is_read_only => return Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            (Access::Write, None) => Some(Locks::Writer),
            (Access::Read, None) => Some(Locks::Readers(1)),
            (Access::Read, Some(Locks::Readers(readers))) => Some(Locks::Readers(readers + 1)),
            _ => return Ok(Err("another database".to_owned())),
        };
        Ok(Ok(Box::new(Locked(self.clone()))))
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        self.call(|disk, fault| match fault {
            Some(Fault::Device) => Err(device()),
            _ => {
                disk.change(0)?;
                let number = disk.files.len();
                disk.files.push(Content::default());
                disk.names.insert(name.to_owned(), number);
                Ok(Box::new(ImageFile { image: self.clone(), number }) as Box<dyn StoredFile>)
            }
        })
    }

    fn open(&self, name: &str, _access: Access) -> io::Result<Box<dyn StoredFile>> {
        self.call(|disk, fault| match (fault, disk.names.get(name)) {
            (Some(Fault::Device), _) => Err(device()),
            (_, None) => Err(io::ErrorKind::NotFound.into()),
            (_, Some(number)) => {
                Ok(Box::new(ImageFile { image: self.clone(), number: *number }) as Box<dyn StoredFile>)
            }
        })
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.call(|disk, fault| {
            if fault == Some(Fault::Device) {
                return Err(device());
            }
            disk.change(0)?;
            let number = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            disk.names.insert(to.to_owned(), number);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call(|disk, fault| {
            if fault == Some(Fault::Device) {
                return Err(device());
            }
            disk.check_writable()?;
            disk.names.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
        })
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.call(|disk, _| Ok(disk.names.keys().cloned().collect()))
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.call(|disk, fault| match fault {
            Some(Fault::Device) => Err(device()),
            // The machine stops before the call has any effect.
            Some(Fault::Crash) => Ok(()),
            _ => {
                disk.durable = disk.names.clone();
                Ok(())
            }
        })
    }
}

#[derive(Debug)]
struct ImageFile {
    image: Image,
    number: Number,
}

impl ImageFile {
    fn call<T>(&self, call: impl FnOnce(&mut Content, Option<Fault>) -> io::Result<T>) -> io::Result<T> {
        self.image.call(|disk, fault| call(&mut disk.files[self.number], fault))
    }
}

impl StoredFile for ImageFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.call(|content, fault| if fault == Some(Fault::Device) { Err(device()) } else { Ok(content.now.clone()) })
    }

    fn length(&self) -> io::Result<u64> {
        self.call(
            |content, fault| if fault == Some(Fault::Device) { Err(device()) } else { Ok(content.now.len() as u64) },
        )
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<usize> {
        self.call(|content, fault| {
            if fault == Some(Fault::Device) {
                return Err(device());
            }
            let rest = content.now.get(offset as usize..).unwrap_or_default();
            let read = rest.len().min(into.len());
            into[..read].copy_from_slice(&rest[..read]);
            Ok(read)
        })
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.image.call(|disk, fault| {
            let written = match fault {
                Some(Fault::Device) => return Err(device()),
                Some(Fault::Short) => &bytes[..bytes.len().div_ceil(2)],
                _ => bytes,
            };
            disk.grow(self.number, offset as usize + written.len())?;
            let content = &mut disk.files[self.number];
            put(&mut content.now, offset as usize, written);
            content.unsynced.push((offset as usize, written.to_vec()));
            Ok(written.len())
        })
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        self.image.call(|disk, fault| {
            if fault == Some(Fault::Device) {
                return Err(device());
            }
            disk.grow(self.number, length as usize)?;
            let recycled = disk.recycled();
            let content = &mut disk.files[self.number];
            let (before, length) = (content.now.len(), content.now.len().max(length as usize));
            content.now.resize(length, 0);
            if let Some(recycled) =
                recycled.and_then(|recycled| recycled.get(before..length.min(recycled.len())).map(<[u8]>::to_vec))
            {
                put(&mut content.now, before, &recycled);
                content.unsynced.push((before, recycled));
            }
            Ok(())
        })
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.image.call(|disk, fault| {
            if fault == Some(Fault::Device) {
                return Err(device());
            }
            disk.check_writable()?;
            disk.files[self.number].now.truncate(length as usize);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.call(|content, fault| match fault {
            Some(Fault::Device) => {
                content.lost.append(&mut content.unsynced);
                Err(device())
            }
            Some(Fault::Crash) => Ok(()),
            _ => {
                let mut synced = std::mem::take(&mut content.synced);
                synced.resize(content.now.len(), 0);
                content.unsynced.drain(..).for_each(|(offset, write)| put(&mut synced, offset, &write));
                content.synced = synced;
                Ok(())
            }
        })
    }
}
