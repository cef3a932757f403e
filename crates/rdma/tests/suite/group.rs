//! Groups of processes: what is refused, by which name, and what is left behind.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    sync::Arc,
    time::Duration,
};

use drtm_htm::{Emulated, NoHtm};
use drtm_rdma::{
    Executor, Fabric, FabricError, Incarnation, JoinError, NodeId, Phase, Presence, Region, RegionError, RegionId,
    Remote, ShmConfig, ShmFabric, VerbError, block_on,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, send, socket_with};

use crate::{
    agent::{Agent, Order, PATIENCE, Service},
    processes::{Directory, Process, ShmMood},
    support::{BASE, fresh, word},
};

fn config(directory: &Directory, node: u16) -> ShmConfig {
    ShmConfig::new("suite", NodeId(node)).directory(&directory.0).patience(PATIENCE)
}

fn join(directory: &Directory, node: u16) -> ShmFabric<NoHtm> {
    ShmFabric::join(NoHtm, config(directory, node)).expect("a group")
}

fn refusal(directory: &Directory, node: u16) -> JoinError {
    ShmFabric::join(NoHtm, config(directory, node)).expect_err("must be refused")
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let directory = Directory::new();
    let group = directory.0.join("suite");
    let first = join(&directory, 0);
    assert!(matches!(refusal(&directory, 0), JoinError::Present { node: NodeId(0) }));
    assert!(matches!(refusal(&directory, 64), JoinError::Node { most: 64, .. }));
    let emulated = ShmFabric::join(Emulated::default(), config(&directory, 1)).expect_err("it sees one process");
    assert!(matches!(emulated, JoinError::Region(RegionError::Engine(_))));

    let description = fs::read_to_string(group.join("group")).expect("a description");
    let with = |from: &str, to: &str| {
        assert!(description.contains(from), "{description}");
        fs::write(group.join("group"), description.replace(from, to)).expect("written");
        let error = refusal(&directory, 1);
        fs::write(group.join("group"), &description).expect("written");
        error
    };
    assert!(matches!(with("drtm group 1", "drtm group 9"), JoinError::Format { .. }));
    assert!(matches!(with(env!("CARGO_PKG_VERSION"), "9.9.9"), JoinError::Version { found, .. } if found == "9.9.9"));
    assert!(matches!(with("without regions", "of hardware regions"), JoinError::Engine { .. }));

    fs::set_permissions(&group, fs::Permissions::from_mode(0o755)).expect("ours");
    assert!(matches!(refusal(&directory, 1), JoinError::Mode { mode: 0o755, .. }));
    fs::set_permissions(&group, fs::Permissions::from_mode(0o700)).expect("ours");
    let second = join(&directory, 1);
    assert_eq!(second.incarnation(), Incarnation(1), "what was refused took no place");
    drop((first, second));
}

#[test]
fn a_directory_of_another_user_or_a_link_is_refused() {
    let directory = Directory::new();
    let elsewhere = Directory::new();
    std::os::unix::fs::symlink(&elsewhere.0, directory.0.join("suite")).expect("a link");
    assert!(matches!(refusal(&directory, 0), JoinError::System { .. }));
    fs::remove_file(directory.0.join("suite")).expect("removed");
    fs::DirBuilder::new().mode(0o700).create(directory.0.join("suite")).expect("a directory");
    // Only root can give it away.
    if std::os::unix::fs::chown(directory.0.join("suite"), Some(12345), None).is_ok() {
        assert!(matches!(refusal(&directory, 0), JoinError::Owner { found: 12345, .. }));
        std::os::unix::fs::chown(directory.0.join("suite"), Some(0), None).expect("taken back");
    }
}

#[test]
fn a_region_that_others_cannot_map_is_refused_and_so_is_anothers() {
    let directory = Directory::new();
    let fabric = join(&directory, 3);
    let node = NodeId(3);
    let alone = Arc::new(Region::anonymous(NoHtm, 4096).expect("a region"));
    assert_eq!(fabric.register(node, alone), Err(FabricError::NotShared { node }));
    let shared = Arc::new(Region::shared(NoHtm, 1 << 20).expect("a region"));
    let foreign = NodeId(4);
    assert_eq!(fabric.register(foreign, Arc::clone(&shared)), Err(FabricError::Foreign { node: foreign }));
    assert_eq!(fabric.endpoint(foreign).err(), Some(FabricError::Foreign { node: foreign }));
    for index in 0..64 {
        assert_eq!(fabric.register(node, Arc::clone(&shared)), Ok(RegionId(index)));
    }
    assert_eq!(fabric.register(node, Arc::clone(&shared)), Err(FabricError::TooManyRegions { node, most: 64 }));
    let endpoints: Vec<_> = (0..32).map(|_| fabric.endpoint(node).expect("room")).collect();
    assert_eq!(fabric.endpoint(node).err(), Some(FabricError::TooManyEndpoints { node, most: 32 }));
    drop(endpoints);
    fabric.leave();
    assert_eq!(fabric.register(node, shared), Err(FabricError::Closed { node }));
    assert_eq!(fabric.endpoint(node).err(), Some(FabricError::Closed { node }));
}

#[test]
fn what_dead_groups_left_is_cleaned_up() {
    let directory = Directory::new();
    let agent = Process::start(&directory.0, NodeId(1), ShmMood::default(), &[]);
    let group = directory.0.join("suite");
    assert_eq!(ShmFabric::<NoHtm>::clean_up(&directory.0).expect("a directory"), 0, "it is alive");
    assert!(group.join("1.sock").exists());
    agent.kill();
    assert!(group.join("1.sock").exists(), "a process that is killed cleans nothing up");
    // Another group in the same place.
    let other = ShmFabric::join(NoHtm, ShmConfig::new("other", NodeId(0)).directory(&directory.0)).expect("a group");
    assert!(!group.exists(), "joining cleans up");
    drop(other);
    // The group itself: the same node again, and what is left of another.
    let agent = Process::start(&directory.0, NodeId(2), ShmMood::default(), &[]);
    agent.kill();
    let fabric = join(&directory, 1);
    assert!(!group.join("2.sock").exists());
    drop(fabric);
    assert!(!group.join("1.sock").exists(), "one that leaves takes its socket along");
    assert!(!directory.0.join("other").exists(), "it was left in good order, and is as dead");
    assert_eq!(ShmFabric::<NoHtm>::clean_up(&directory.0).expect("a directory"), 1);
    assert!(!group.exists());
}

#[test]
fn incarnations_grow_over_leaving_and_dying() {
    let directory = Directory::new();
    let keeper = join(&directory, 0);
    for incarnation in 1..=3 {
        let fabric = join(&directory, 1);
        assert_eq!(fabric.incarnation(), Incarnation(incarnation));
        drop(fabric);
    }
    Process::start(&directory.0, NodeId(1), ShmMood::default(), &[]).kill();
    assert_eq!(join(&directory, 1).incarnation(), Incarnation(5));
    drop(keeper);
}

#[test]
fn a_stopped_process_is_alive() {
    let directory = Directory::new();
    let fabric = join(&directory, 0);
    let agent = Process::start(&directory.0, NodeId(1), ShmMood::default(), &[]);
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    let verbs = endpoint.during(Phase::Other);
    agent.ask(Order::Serve(Service::Backwards));
    agent.signal(rustix::process::Signal::STOP);
    // Its memory is there, its answers wait, and it is not taken for dead.
    block_on(&endpoint, async {
        verbs.write(word(1, 0), &[7]).await.expect("memory");
        assert_eq!(verbs.read_word(word(1, 0)).await, Ok(7));
        let soon = endpoint.now() + Duration::from_millis(50);
        assert!(endpoint.before(soon, verbs.call(NodeId(1), b"hello")).await.is_err());
        assert_eq!(endpoint.presence(NodeId(1)), Presence::Here(Incarnation(1)));
    });
    let impatient = config(&directory, 2).patience(Duration::from_millis(50));
    let error = ShmFabric::join(NoHtm, impatient).expect_err("it needs an answer of each");
    assert!(matches!(error, JoinError::NoAnswer { node: NodeId(1) }));
    agent.signal(rustix::process::Signal::CONT);
    let reply = block_on(&endpoint, verbs.call(NodeId(1), b"drtm")).map(|reply| reply.to_vec());
    assert_eq!(reply.as_deref(), Ok(&b"mtrd"[..]));
    agent.ask(Order::Halt);
}

/// A peer whose files and letters make no sense is not believed, and the others go on.
#[test]
fn strangers_that_talk_nonsense_are_turned_away() {
    let directory = Directory::new();
    let fabric = join(&directory, 0);
    let path = directory.0.join("suite").join("0.sock");
    let stranger = || -> OwnedFd {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
        connect(&socket, &SocketAddrUnix::new(&path).expect("short")).expect("it listens");
        socket
    };
    let silent: Vec<OwnedFd> = (0..100).map(|_| stranger()).collect();
    let talkers: Vec<OwnedFd> = (0..20_u8)
        .map(|length| {
            let socket = stranger();
            // It may be gone before all is said.
            let _ = send(&socket, &vec![length; usize::from(length) * 5], rustix::net::SendFlags::NOSIGNAL);
            socket
        })
        .collect();
    let other = join(&directory, 1);
    let endpoint = other.endpoint(NodeId(1)).expect("room");
    assert_eq!(endpoint.presence(NodeId(0)), Presence::Here(Incarnation(1)));
    drop((silent, talkers, fabric));
}

/// Regions that grow, named files, and what is registered before and after a peer joins.
#[test]
fn regions_grow_and_become_known_to_all() {
    let directory = Directory::new();
    let one = join(&directory, 0);
    let before = fresh(Region::shared(NoHtm, 64 << 20).expect("a region"));
    assert_eq!(one.register(NodeId(0), Arc::clone(&before)), Ok(RegionId(0)));
    let two = join(&directory, 1);
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(directory.0.join("named"))
        .expect("a named file");
    let named = Arc::new(Region::create(NoHtm, file, 1 << 20).expect("a region"));
    let at = named.extend(8, 8).expect("room");
    assert_eq!(one.register(NodeId(0), named), Ok(RegionId(1)));
    let endpoint = two.endpoint(NodeId(1)).expect("room");
    let verbs = endpoint.during(Phase::Other);
    block_on(&endpoint, async {
        let in_named = Remote { node: NodeId(0), region: RegionId(1), offset: at };
        verbs.write(in_named, &[9]).await.expect("known, or about to be");
        assert_eq!(verbs.read_word(in_named).await, Ok(9));
        let place = before.extend(10 << 20, 64).expect("it grows");
        let end = Remote { node: NodeId(0), region: RegionId(0), offset: place + ((10 << 20) - 8) };
        assert_eq!(verbs.fetch_add(end, 3).await, Ok(0));
        assert_eq!(verbs.read_word(end).await, Ok(3));
        let beyond = Remote { offset: end.offset + 8, ..end };
        assert_eq!(verbs.read_word(beyond).await, Err(VerbError::OutOfBounds { at: beyond, words: 1 }));
        let unregistered = Remote { region: RegionId(2), offset: BASE, ..end };
        let unknown = VerbError::UnknownRegion { node: NodeId(0), region: RegionId(2) };
        assert_eq!(verbs.read_word(unregistered).await, Err(unknown));
    });
}

/// What is left when the process that leaves still has endpoints: they end what they do, with
/// errors.
#[test]
fn a_node_that_left_is_alone() {
    let directory = Directory::new();
    let [one, two] = [join(&directory, 0), join(&directory, 1)];
    let endpoint = one.endpoint(NodeId(0)).expect("room");
    let other = two.endpoint(NodeId(1)).expect("room");
    one.leave();
    let mut executor = Executor::new(&endpoint).patience(PATIENCE);
    executor.spawn(async {
        let error = endpoint.during(Phase::Other).send(NodeId(1), b"hello").await.expect_err("it has left");
        assert!(error.is_departure());
    });
    executor.run();
    let mut executor = Executor::new(&other).patience(PATIENCE);
    executor.spawn(async {
        assert_eq!(other.next_event().await.presence, Presence::Left(Incarnation(1)));
    });
    executor.run();
    assert_eq!(join(&directory, 0).incarnation(), Incarnation(2), "it may come back at once");
}
