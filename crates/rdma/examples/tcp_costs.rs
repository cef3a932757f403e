//! What TCP between two processes costs, beside the raw floor of the same, in one run: medians by
//! the wall clock, of turns that alternate with raw ones.
//!
//! ```text
//! cargo run --profile bench -p drtm-rdma --example tcp_costs [clear]
//! ```
//!
//! Meant for an idle machine with two processors or more. The program starts itself once more, as
//! the node that owns the memory and answers the calls. The raw floor is a ping-pong of polled
//! non-blocking sockets, of as many bytes as the frames have without encryption.

#[cfg(not(feature = "model"))]
use {
    drtm_htm::NoHtm,
    drtm_rdma::{
        Endpoint, Executor, Fabric, NodeId, Phase, Region, RegionId, Remote, TcpConfig, TcpFabric, TcpPort, block_on,
    },
    rustix::time::{ClockId, clock_gettime},
    std::{
        env,
        error::Error,
        hint::spin_loop,
        io::{ErrorKind, Read, Write},
        net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
        process::Command,
        sync::Arc,
        thread,
        time::{Duration, Instant},
    },
};

#[cfg(not(feature = "model"))]
type Failed = Box<dyn Error + Send + Sync>;

#[cfg(not(feature = "model"))]
const OWNER: NodeId = NodeId(1);

/// Bytes of each operation, and operations under way at a time where there are many.
#[cfg(not(feature = "model"))]
const BYTES: usize = 64;
#[cfg(not(feature = "model"))]
const MANY: usize = 16;

/// Rounds, and what each takes of each measurement.
#[cfg(not(feature = "model"))]
const ROUNDS: usize = 12;
#[cfg(not(feature = "model"))]
const ROUND: Duration = Duration::from_millis(60);

/// After how long the other side of the floor does not spin any more.
#[cfg(not(feature = "model"))]
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(not(feature = "model"))]
fn join(node: NodeId, ports: &[u16], sealed: bool) -> Result<TcpFabric<NoHtm>, Failed> {
    let at = |node: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, ports[node]));
    let config = TcpConfig::new(node, at(usize::from(node.0)), [42; 32]).sealed(sealed);
    Ok(TcpFabric::join(NoHtm, config.peer(NodeId(0), at(0)).peer(NodeId(1), at(1)))?)
}

/// Says all of one, and then hears all of the other.
#[cfg(not(feature = "model"))]
fn exchange(mut socket: &TcpStream, say: &[u8], hear: &mut [u8]) -> Result<(), Failed> {
    let mut said = 0;
    while said < say.len() {
        match socket.write(&say[said..]) {
            Ok(count) => said += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    let mut heard = 0;
    while heard < hear.len() {
        match socket.read(&mut hear[heard..]) {
            Ok(0) => return Err("the other side has left".into()),
            Ok(count) => heard += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The raw floor of one kind of operations: its connection, and bytes to and fro.
#[cfg(not(feature = "model"))]
struct Raw {
    socket: TcpStream,
    to: Vec<u8>,
    fro: Vec<u8>,
}

#[cfg(not(feature = "model"))]
impl Raw {
    fn new(socket: TcpStream, to: usize, fro: usize) -> Result<Self, Failed> {
        socket.set_nodelay(true)?;
        let mut sizes = &socket;
        sizes.write_all(&[to as u64, fro as u64].map(u64::to_le_bytes).concat())?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, to: vec![1; to], fro: vec![0; fro] })
    }

    /// Answers until the other side has left.
    fn answer(socket: TcpStream) -> Result<(), Failed> {
        socket.set_nodelay(true)?;
        let (mut to, mut fro) = ([0; 8], [0; 8]);
        (&socket).read_exact(&mut to)?;
        (&socket).read_exact(&mut fro)?;
        let [mut hear, say] = [to, fro].map(|size| vec![2; u64::from_le_bytes(size) as usize]);
        socket.set_nonblocking(true)?;
        loop {
            // It spins only while it is measured: after a pause it sleeps until there is more.
            let (mut heard, since) = (0, Instant::now());
            while heard < hear.len() {
                match (&socket).read(&mut hear[heard..]) {
                    Ok(0) => return Ok(()),
                    Ok(count) => heard += count,
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                    Err(_) if heard == 0 && since.elapsed() > PAUSE => {
                        socket.set_nonblocking(false)?;
                        socket.peek(&mut [0])?;
                        socket.set_nonblocking(true)?;
                    }
                    Err(_) => spin_loop(),
                }
            }
            exchange(&socket, &say, &mut [])?;
        }
    }
}

/// The owner: its memory, and answers, until the caller has left.
#[cfg(not(feature = "model"))]
fn own(ports: &[u16], sealed: bool) -> Result<(), Failed> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, ports[2]))?;
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            thread::spawn(|| Raw::answer(socket));
        }
    });
    let fabric = join(OWNER, ports, sealed)?;
    let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
    memory.extend(1 << 16, 4096)?;
    fabric.register(OWNER, memory)?;
    let endpoint = fabric.endpoint(OWNER)?;
    let mut executor = Executor::new(&endpoint);
    executor.serve(endpoint.during(Phase::Other).serve(|_, request, reply| {
        if request.len() == 1 {
            // What this process has used of the processor so far.
            return reply.extend(used().as_nanos().to_le_bytes());
        }
        reply.extend_from_slice(request);
    }));
    executor.spawn(async { while endpoint.next_event().await.presence.here().is_some() {} });
    executor.run();
    Ok(())
}

#[cfg(not(feature = "model"))]
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(not(feature = "model"))]
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures turns of the fabric and of the floor by turns, and prints medians: of single turns, and
/// of the ratios of rounds.
#[cfg(not(feature = "model"))]
fn beside(
    what: &str,
    raw: &mut Raw,
    operations: usize,
    mut turn: impl AsyncFnMut() -> Result<(), Failed>,
    endpoint: &Endpoint<TcpPort<NoHtm>>,
) -> Result<(), Failed> {
    let (mut ours, mut raws, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut turns, mut lasted) = (0, 0.0);
    for _ in 0..ROUNDS {
        let mut took = Vec::new();
        block_on(endpoint, async {
            let begin = Instant::now();
            while begin.elapsed() < ROUND {
                let before = Instant::now();
                turn().await?;
                took.push(before.elapsed().as_nanos() as f64);
            }
            Ok::<_, Failed>(())
        })?;
        turns += took.len();
        lasted += took.iter().sum::<f64>();
        let mut raw_took = Vec::new();
        let begin = Instant::now();
        while begin.elapsed() < ROUND {
            let before = Instant::now();
            exchange(&raw.socket, &raw.to, &mut raw.fro)?;
            raw_took.push(before.elapsed().as_nanos() as f64);
        }
        let (our, floor) = (median(took), median(raw_took));
        ours.push(our);
        raws.push(floor);
        ratios.push(our / floor);
    }
    let (our, floor, ratio) = (median(ours) / 1e3, median(raws) / 1e3, median(ratios));
    let rate = (operations * turns) as f64 / lasted * 1e6;
    println!(
        "{what:<52}{our:8.1} us, raw {floor:6.1} us: {ratio:5.2} times; {rate:7.0} k/s, {:.2} of raw",
        1.0 / ratio
    );
    Ok(())
}

#[cfg(not(feature = "model"))]
fn measure(endpoint: &Endpoint<TcpPort<NoHtm>>, at: Remote, ports: &[u16]) -> Result<(), Failed> {
    let verbs = endpoint.during(Phase::Execute);
    let raw = |to, fro| Raw::new(TcpStream::connect((Ipv4Addr::LOCALHOST, ports[2]))?, to, fro);
    let (mut one, mut many) = (raw(16, 8 + BYTES)?, raw(MANY * 16, MANY * (8 + BYTES))?);
    let mut message = raw(16 + BYTES, 24 + BYTES)?;
    let read = async || {
        verbs.read(at, BYTES / 8).await?;
        Ok(())
    };
    beside("a READ of 64 bytes", &mut one, 1, read, endpoint)?;
    let reads = async || {
        let post = |index| {
            let mut batch = verbs.batch();
            let read = batch.read(at + (BYTES * index) as u64, BYTES / 8)?;
            batch.ring();
            Ok::<_, Failed>(read)
        };
        for read in (0..MANY).map(post).collect::<Result<Vec<_>, _>>()? {
            read.await?;
        }
        Ok(())
    };
    beside("16 READs of 64 bytes at a time", &mut many, MANY, reads, endpoint)?;
    let call = async || {
        verbs.call(OWNER, &[1; BYTES]).await?;
        Ok(())
    };
    beside("a call of 64 bytes, and its reply", &mut message, 1, call, endpoint)?;

    let mut waits = Vec::new();
    for _ in 0..300 {
        // Both sides sleep by now.
        thread::sleep(Duration::from_millis(3));
        let start = Instant::now();
        block_on(endpoint, verbs.call(OWNER, &[1; BYTES]))?;
        waits.push(start.elapsed().as_nanos() as f64 / 1e3);
    }
    println!("{:<52}{:8.1} us", "a call to a process that sleeps, and its reply", median(waits));
    Ok(())
}

/// The time of the processor that both processes take in a second in which their workers wait for
/// calls and none comes.
#[cfg(not(feature = "model"))]
fn idle(endpoint: &Endpoint<TcpPort<NoHtm>>) -> Result<(), Failed> {
    let verbs = endpoint.during(Phase::Other);
    let theirs = || {
        let reply = block_on(endpoint, verbs.call(OWNER, &[0]))?;
        Ok::<_, Failed>(Duration::from_nanos(u128::from_le_bytes(reply[..].try_into()?) as u64))
    };
    let mut executor = Executor::new(endpoint);
    executor.serve(verbs.serve(|_, _, _| {}));
    executor.spawn(endpoint.sleep(Duration::from_secs(1)));
    let before = (used(), theirs()?);
    executor.run();
    let after = (used(), theirs()?);
    let percent = |before: Duration, after: Duration| 100.0 * (after - before).as_secs_f64();
    let (own, other) = (percent(before.0, after.0), percent(before.1, after.1));
    println!("{:<52}{own:8.3} % here, {other:.3} % there", "an idle second, time of the processor");
    Ok(())
}

#[cfg(not(feature = "model"))]
fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let sealed = arguments.first().is_none_or(|first| first != "clear");
    let ports: Vec<u16> = arguments.iter().skip(1).map(|port| port.parse()).collect::<Result<_, _>>()?;
    if !ports.is_empty() {
        return own(&ports, sealed);
    }
    // Ports that are free now.
    let listeners = (0..3).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
    let ports = listeners.iter().map(|it| Ok(it.local_addr()?.port())).collect::<Result<Vec<_>, Failed>>()?;
    drop(listeners);
    let fabric = join(NodeId(0), &ports, sealed)?;
    let endpoint = fabric.endpoint(NodeId(0))?;
    let sealing = if sealed { "sealed" } else { "clear" };
    let numbers = ports.iter().map(u16::to_string);
    let mut owner = Command::new(env::current_exe()?).arg(sealing).args(numbers).spawn()?;
    block_on(&endpoint, async { while endpoint.next_event().await.presence.here().is_none() {} });
    let region = Remote { node: OWNER, region: RegionId(0), offset: drtm_rdma::Offset::new(0) };
    // The memory is registered a little later.
    block_on(&endpoint, async {
        let verbs = endpoint.during(Phase::Other);
        while let Err(drtm_rdma::VerbError::UnknownRegion { .. }) = verbs.read(region, 1).await {
            endpoint.yield_now().await;
        }
    });
    println!("TCP, {}", if sealed { "encrypted (the floor is not)" } else { "not encrypted" });
    measure(&endpoint, region, &ports)?;
    idle(&endpoint)?;
    drop((endpoint, fabric));
    owner.wait()?;
    Ok(())
}

#[cfg(feature = "model")]
fn main() {}
