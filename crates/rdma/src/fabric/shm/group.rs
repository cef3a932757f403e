//! A group in the file system: one directory, which contains
//!
//! ```text
//! group     format, version and engine of the group's processes
//! join      locked by the process that is joining
//! 3.lock    locked by node 3 as long as it lives; its last incarnation
//! 3.sock    where node 3 is to be greeted
//! ```
//!
//! Locks are the system's: it releases them when a process ends, however it ends. So a locked node
//! is alive. The process that holds `join` may take or remove everything else.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};

use crate::{Incarnation, NodeId, fabric::die, region::name_of};

use super::{JoinError, NODES, ShmConfig, wire::VERSION};

const FORMAT: &str = "drtm group 1";

/// A process that is joining a group. Others that want to join wait until this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) seat: Seat,
    pub(super) listener: OwnedFd,
    pub(super) incarnation: Incarnation,
    /// The nodes that are there.
    pub(super) others: Vec<NodeId>,
    pub(super) directory: PathBuf,
    _joining: File,
}

/// A node's files in the directory. Dropping this removes them.
#[derive(Debug)]
pub(super) struct Seat {
    _lock: File,
    socket: PathBuf,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The lock is still held, so the file belongs to this node. If it cannot be removed, the
        // next process that joins tries again.
        let _ = fs::remove_file(&self.socket);
    }
}

pub(super) fn socket_of(directory: &Path, node: NodeId) -> PathBuf {
    directory.join(format!("{}.sock", node.0))
}

fn lock_of(directory: &Path, node: NodeId) -> PathBuf {
    directory.join(format!("{}.lock", node.0))
}

fn checked_name(name: &str) -> Result<(), JoinError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=32).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain) {
        Ok(())
    } else {
        Err(JoinError::Name { name: name.to_owned() })
    }
}

/// Reserves a node's place in its group.
pub(super) fn enter(config: &ShmConfig, engine: u64) -> Result<Entry, JoinError> {
    checked_name(&config.group)?;
    let node = config.node;
    if usize::from(node.0) >= NODES {
        return Err(JoinError::Node { node, most: NODES });
    }
    let directory = config.directory.join(&config.group);
    let created = DirBuilder::new().mode(0o700).recursive(true).create(&config.directory);
    created.map_err(JoinError::io(format!("create {}", config.directory.display())))?;
    let joining = lock_directory(&directory, config.patience)?;
    let others: Vec<NodeId> = (0..NODES as u16).map(NodeId).filter(|other| is_alive(&directory, *other)).collect();
    if others.is_empty() {
        describe(&directory, engine)?;
    } else {
        check_description(&directory, engine)?;
    }
    if others.contains(&node) {
        return Err(JoinError::Present { node });
    }
    for dead in (0..NODES as u16).map(NodeId).filter(|node| !others.contains(node)) {
        // Most of these never existed.
        let _ = fs::remove_file(socket_of(&directory, dead));
    }
    let (lock, incarnation) = take_seat(&directory, node)?;
    die::site("join.locked");
    let path = socket_of(&directory, node);
    let listener = bound(&path).map_err(JoinError::system(format!("make the socket {}", path.display())))?;
    die::site("join.bound");
    Ok(Entry { seat: Seat { _lock: lock, socket: path }, listener, incarnation, others, directory, _joining: joining })
}

/// Creates the directory if it does not exist, checks that only this user can enter it, and locks
/// it for joining.
fn lock_directory(directory: &Path, patience: Duration) -> Result<File, JoinError> {
    let start = Instant::now();
    let shown = directory.display();
    loop {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(JoinError::io(format!("create {shown}"))(error));
            }
            _ => {}
        }
        if let Err(error) = check_directory(directory) {
            // It may have been removed meanwhile, which is no error.
            match error {
                JoinError::System { source, .. } if source.kind() == std::io::ErrorKind::NotFound => continue,
                error => return Err(error),
            }
        }
        let path = directory.join("join");
        match try_lock(&path, true) {
            // The directory may have been removed between opening and locking.
            Ok(Some(file)) if is_still(&file, &path) => return Ok(file),
            Ok(_) => {}
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(JoinError::system(format!("lock {}", path.display()))(errno)),
        }
        if start.elapsed() > patience {
            return Err(JoinError::system(format!("join while another process is joining {shown}"))(Errno::TIMEDOUT));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn check_directory(directory: &Path) -> Result<(), JoinError> {
    let metadata =
        fs::symlink_metadata(directory).map_err(JoinError::io(format!("look at {}", directory.display())))?;
    if !metadata.is_dir() {
        return Err(JoinError::system(format!("enter {}", directory.display()))(Errno::NOTDIR));
    }
    let ours = rustix::process::geteuid().as_raw();
    if metadata.uid() != ours {
        return Err(JoinError::Owner { what: directory.display().to_string(), found: metadata.uid(), ours });
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(JoinError::Mode { path: directory.to_owned(), mode });
    }
    Ok(())
}

/// Opens and locks a file. Returns `None` if another process has it locked.
fn try_lock(path: &Path, create: bool) -> Result<Option<File>, Errno> {
    let options = OpenOptions::new().read(true).write(true).create(create).mode(0o600).to_owned();
    let file = options.open(path).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns whether the path still leads to this file.
fn is_still(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(file), Ok(path)) => (file.dev(), file.ino()) == (path.dev(), path.ino()),
        _ => false,
    }
}

fn is_alive(directory: &Path, node: NodeId) -> bool {
    // A lock that was acquired is released at once.
    matches!(try_lock(&lock_of(directory, node), false), Ok(None))
}

/// Locks a node's file permanently, and returns the node's next incarnation.
fn take_seat(directory: &Path, node: NodeId) -> Result<(File, Incarnation), JoinError> {
    let path = lock_of(directory, node);
    let what = || format!("take {}", path.display());
    let mut file = try_lock(&path, true).map_err(JoinError::system(what()))?.ok_or(JoinError::Present { node })?;
    let mut last = String::new();
    file.read_to_string(&mut last).map_err(JoinError::io(what()))?;
    let known = || "the number of the last incarnation".to_owned();
    let last: u32 = match last.trim() {
        "" => 0,
        number => number.parse().map_err(|_| JoinError::Format { found: last.clone(), known: known() })?,
    };
    let incarnation =
        last.checked_add(1).ok_or_else(|| JoinError::Format { found: last.to_string(), known: known() })?;
    // The write is in place, and no shorter, so that a crash in between leaves one number or the
    // other.
    file.seek(SeekFrom::Start(0)).map_err(JoinError::io(what()))?;
    file.write_all(format!("{incarnation:010}").as_bytes()).map_err(JoinError::io(what()))?;
    Ok((file, Incarnation(incarnation)))
}

fn bound(path: &Path) -> Result<OwnedFd, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    bind(&socket, &address)?;
    listen(&socket, NODES as i32)?;
    Ok(socket)
}

/// Writes the description of a group without living nodes.
fn describe(directory: &Path, engine: u64) -> Result<(), JoinError> {
    let new = directory.join("group.new");
    let text = format!("{FORMAT}\n{VERSION}\n{}\n", name_of(engine));
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, directory.join("group")))
        .map_err(JoinError::io(format!("describe {}", directory.display())))
}

/// Compares the engine with the group's description.
fn check_description(directory: &Path, engine: u64) -> Result<(), JoinError> {
    let path = directory.join("group");
    let text = fs::read_to_string(&path).map_err(JoinError::io(format!("read {}", path.display())))?;
    let mut lines = text.lines();
    let mut line = || lines.next().unwrap_or_default().to_owned();
    let (format, version, kind) = (line(), line(), line());
    if format != FORMAT {
        return Err(JoinError::Format { found: format, known: FORMAT.to_owned() });
    }
    if version != VERSION {
        return Err(JoinError::Version { found: version, ours: VERSION.to_owned() });
    }
    if kind != name_of(engine) {
        return Err(JoinError::Engine { found: kind, ours: name_of(engine).to_owned() });
    }
    Ok(())
}

/// Removes the groups without living nodes from a directory.
pub(super) fn clean_up(directory: &Path) -> Result<usize, JoinError> {
    clean_up_but(directory, None)
}

pub(super) fn clean_up_but(directory: &Path, but: Option<&str>) -> Result<usize, JoinError> {
    let what = || format!("read {}", directory.display());
    let mut removed = 0;
    for entry in fs::read_dir(directory).map_err(JoinError::io(what()))? {
        let entry = entry.map_err(JoinError::io(what()))?;
        let name = entry.file_name();
        let is_group = name.to_str().is_some_and(|name| checked_name(name).is_ok() && but != Some(name));
        let group = entry.path();
        if is_group && group.join("join").exists() && check_directory(&group).is_ok() {
            removed += usize::from(remove_if_dead(&group));
        }
    }
    Ok(removed)
}

/// Removes a group, unless one of its nodes is alive or a process is joining. A file that cannot be
/// removed stays.
fn remove_if_dead(group: &Path) -> bool {
    let join = group.join("join");
    let Ok(Some(joining)) = try_lock(&join, false) else { return false };
    let nodes = || (0..NODES as u16).map(NodeId);
    if !is_still(&joining, &join) || nodes().any(|node| is_alive(group, node)) {
        return false;
    }
    for node in nodes() {
        let _ = fs::remove_file(socket_of(group, node));
        let _ = fs::remove_file(lock_of(group, node));
    }
    for file in ["group", "group.new"] {
        let _ = fs::remove_file(group.join(file));
    }
    // It is removed last, while locked: a process that waits for it then finds another file, or
    // none.
    let _ = fs::remove_file(&join);
    fs::remove_dir(group).is_ok()
}
