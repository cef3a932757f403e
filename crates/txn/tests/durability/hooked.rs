//! A simulated disk that lets a test run code before each write to a checkpoint.

use std::{fmt, io, sync::Arc, time::Duration};

use drtm_txn::{
    Builder, Durability,
    durability::storage::{Access, DirectoryLock, Image, Storage, StoredFile},
};
use parking_lot::Mutex;

use super::SEGMENT;

type Hook = Box<dyn FnMut() + Send>;

#[derive(Clone)]
pub(crate) struct Hooked {
    disk: Image,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").field("disk", &self.disk).finish_non_exhaustive()
    }
}

impl Hooked {
    pub(crate) fn new(disk: &Image) -> Self {
        Self { disk: disk.clone(), hook: Arc::default() }
    }

    pub(crate) fn builder(&self, durability: Durability) -> Builder {
        let never = Duration::from_secs(3_600);
        let builder = Builder::new().memory(16 << 20).storage(Arc::new(self.clone()), SEGMENT);
        builder.durability(durability).flush_within(never)
    }

    /// Runs a hook before every write to a checkpoint, until [`no_more`](Self::no_more).
    pub(crate) fn before_writes(&self, hook: impl FnMut() + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }

    pub(crate) fn no_more(&self) {
        self.hook.lock().take();
    }

    fn run(&self) {
        // The hook may call this again.
        let hook = self.hook.lock().take();
        if let Some(mut hook) = hook {
            hook();
            *self.hook.lock() = Some(hook);
        }
    }
}

#[derive(Debug)]
struct HookedFile {
    file: Box<dyn StoredFile>,
    hooked: Hooked,
}

impl Storage for Hooked {
    fn name(&self) -> String {
        self.disk.name()
    }

    fn lock(&self, access: Access) -> io::Result<Result<Box<dyn DirectoryLock>, String>> {
        self.disk.lock(access)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn StoredFile>> {
        let file = self.disk.create(name)?;
        let is_checkpoint = name.contains("checkpoint");
        Ok(if is_checkpoint { Box::new(HookedFile { file, hooked: self.clone() }) } else { file })
    }

    fn open(&self, name: &str, access: Access) -> io::Result<Box<dyn StoredFile>> {
        Storage::open(&self.disk, name, access)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.disk.remove(name)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        self.disk.list()
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }
}

impl StoredFile for HookedFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        self.file.read()
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.hooked.run();
        self.file.write_at(offset, bytes)
    }

    fn reserve(&self, length: u64) -> io::Result<()> {
        self.file.reserve(length)
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.file.truncate(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}
