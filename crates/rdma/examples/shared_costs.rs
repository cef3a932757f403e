//! What shared memory between two processes costs, beside the raw floor of the same, in one run:
//! nanoseconds by the wall clock.
//!
//! ```text
//! cargo run --profile bench -p drtm-rdma --example shared_costs
//! ```
//!
//! Meant for an idle machine with two processors or more. The program starts itself once more, as
//! the node that owns the memory and answers the calls.

#[cfg(not(feature = "model"))]
use {
    drtm_htm::{Engine, NoHtm},
    drtm_rdma::{
        Endpoint, Executor, Fabric, NodeId, Offset, Phase, Region, RegionId, Remote, ShmConfig, ShmFabric, ShmPort,
        block_on, run,
    },
    std::{
        error::Error,
        hint::{black_box, spin_loop},
        path::Path,
        process::Command,
        sync::Arc,
        time::{Duration, Instant},
    },
};

#[cfg(not(feature = "model"))]
const OWNER: NodeId = NodeId(1);

/// Words of the memory that is read at random: 256 MiB, more than caches hold.
#[cfg(not(feature = "model"))]
const WORDS: u64 = (256 << 20) / 8;

#[cfg(not(feature = "model"))]
const OPERATIONS: u64 = 400_000;

/// READs under way at a time.
#[cfg(not(feature = "model"))]
const OUTSTANDING: usize = 16;

/// Round trips of a part. On a machine that others use, too, the quickest of many parts is one in
/// which neither side has waited for a processor.
#[cfg(not(feature = "model"))]
const PART: u64 = 100;

/// The quickest of several parts.
#[cfg(not(feature = "model"))]
struct Quickest {
    least: Duration,
    since: Instant,
}

#[cfg(not(feature = "model"))]
impl Quickest {
    fn new() -> Self {
        Self { least: Duration::MAX, since: Instant::now() }
    }

    /// Notes that a part has ended, and another one begins.
    fn part(&mut self) {
        let now = Instant::now();
        self.least = self.least.min(now - self.since);
        self.since = now;
    }

    fn report(self, what: &str) {
        println!("{:<64}{:9.1} ns", format!("{what}, quickest"), self.least.as_nanos() as f64 / PART as f64);
    }
}

#[cfg(not(feature = "model"))]
fn report(what: &str, count: u64, start: Instant) {
    println!("{what:<64}{:9.1} ns", start.elapsed().as_nanos() as f64 / count as f64);
}

/// A line at random, by a generator that costs next to nothing.
#[cfg(not(feature = "model"))]
fn line(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
    (*state >> 33) % (WORDS / 8) * 8
}

/// The owner: its memory, and answers, until the caller has left.
#[cfg(not(feature = "model"))]
fn own(directory: &Path) -> Result<(), Box<dyn Error>> {
    let fabric = ShmFabric::join(NoHtm, ShmConfig::new("costs", OWNER).directory(directory))?;
    let memory = Arc::new(Region::shared(NoHtm, 2 * 8 * WORDS)?);
    let at = memory.extend(8 * WORDS, 4096)?;
    for word in memory.words(at, WORDS as usize)? {
        NoHtm.store(word, 1);
    }
    // Where it is, and the flag of the raw floor, which is the first word.
    NoHtm.store(memory.root(0).ok_or("a root")?, at.bytes());
    fabric.register(OWNER, Arc::clone(&memory))?;
    let endpoint = fabric.endpoint(OWNER)?;
    let mut executor = Executor::new(&endpoint);
    executor.serve(endpoint.during(Phase::Other).serve(|_, request, reply| match request {
        // The raw floor: this many times, a word that the other side sets is answered by the next
        // one.
        [0, count @ ..] => {
            let count = count.try_into().map_or(0, u64::from_le_bytes);
            let words = memory.words(at, 16).expect("allocated");
            for turn in 1..=count {
                while NoHtm.load(&words[0]) != turn {
                    spin_loop();
                }
                NoHtm.store(&words[8], turn);
            }
        }
        request => reply.extend_from_slice(request),
    }));
    executor.spawn(async { while endpoint.next_event().await.presence.here().is_some() {} });
    executor.run();
    Ok(())
}

#[cfg(not(feature = "model"))]
fn reads(endpoint: &Endpoint<ShmPort<NoHtm>>, at: Remote, raw: &Region<NoHtm>) -> Result<(), Box<dyn Error>> {
    let verbs = endpoint.during(Phase::Execute);
    let words = raw.words(at.offset, WORDS as usize)?;
    for round in ["cold", "warm"] {
        let (mut state, mut sum) = (1, 0_u64);
        let start = Instant::now();
        for _ in 0..OPERATIONS {
            let first = line(&mut state) as usize;
            sum = words[first..first + 8].iter().fold(sum, |sum, word| sum.wrapping_add(NoHtm.load_relaxed(word)));
        }
        black_box(sum);
        report(&format!("64 bytes at random, raw loads ({round})"), OPERATIONS, start);
        let start = Instant::now();
        run(endpoint, OUTSTANDING, |index| async move {
            let mut state = index as u64;
            for _ in 0..OPERATIONS / OUTSTANDING as u64 {
                let words = verbs.read(at + 8 * line(&mut state), 8).await.expect("allocated");
                black_box(words[0]);
            }
        });
        report(&format!("64 bytes at random, READ, {OUTSTANDING} outstanding ({round})"), OPERATIONS, start);
    }
    let (mut place, start) = (1_u64, Instant::now());
    for _ in 0..OPERATIONS {
        let found = NoHtm.load_relaxed(&words[line(&mut place) as usize]);
        place = place.wrapping_add(found);
    }
    report("a word at random, each where the one before says, raw", OPERATIONS, start);
    let start = Instant::now();
    block_on(endpoint, async {
        let mut place = 1_u64;
        for _ in 0..OPERATIONS {
            place = place.wrapping_add(verbs.read_word(at + 8 * line(&mut place)).await.expect("allocated"));
        }
    });
    report("a word at random, each where the one before says, READ", OPERATIONS, start);
    Ok(())
}

#[cfg(not(feature = "model"))]
fn calls(endpoint: &Endpoint<ShmPort<NoHtm>>, at: Remote, raw: &Region<NoHtm>) -> Result<(), Box<dyn Error>> {
    let verbs = endpoint.during(Phase::Execute);
    let count = 100_000_u64;
    block_on(endpoint, async {
        let what = "a call of 32 bytes to another process, and its reply";
        let (start, mut quickest) = (Instant::now(), Quickest::new());
        for turn in 1..=count {
            verbs.call(OWNER, &[1; 32]).await?;
            if turn % PART == 0 {
                quickest.part();
            }
        }
        report(what, count, start);
        quickest.report(what);
        Ok::<(), drtm_rdma::VerbError>(())
    })?;
    // The floor: one line each way, and nothing else. The owner enters it by a call, which it
    // answers at the end.
    let words = raw.words(at.offset, 16)?;
    NoHtm.store(&words[0], 0);
    NoHtm.store(&words[8], 0);
    let mut request = vec![0];
    request.extend(count.to_le_bytes());
    let mut batch = verbs.batch();
    let call = batch.call(OWNER, &request)?;
    batch.ring();
    endpoint.progress();
    let (mut start, mut quickest) = (Instant::now(), Quickest::new());
    for turn in 1..=count {
        NoHtm.store(&words[0], turn);
        while NoHtm.load(&words[8]) != turn {
            spin_loop();
        }
        if turn == 1 {
            // By now it is there.
            start = Instant::now();
        }
        if turn % PART == 0 {
            quickest.part();
        }
    }
    let what = "a word to another process and back, spinning, raw";
    report(what, count - 1, start);
    quickest.report(what);
    block_on(endpoint, call)?;

    let mut waits: Vec<Duration> = Vec::new();
    for _ in 0..300 {
        // Both sides sleep by now.
        std::thread::sleep(Duration::from_millis(3));
        let start = Instant::now();
        block_on(endpoint, verbs.call(OWNER, &[1; 32]))?;
        waits.push(start.elapsed());
    }
    waits.sort_unstable();
    println!(
        "{:<64}{:9.1} us",
        "a call to a process that sleeps, and its reply, median",
        waits[150].as_nanos() as f64 / 1e3
    );
    Ok(())
}

/// The time of the processor that this process takes in a second in which its worker answers calls
/// and none comes.
#[cfg(not(feature = "model"))]
fn idle(endpoint: &Endpoint<ShmPort<NoHtm>>) {
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let mut executor = Executor::new(endpoint);
    executor.serve(endpoint.during(Phase::Other).serve(|_, _, _| {}));
    executor.spawn(endpoint.sleep(Duration::from_secs(1)));
    let before = used();
    executor.run();
    let after = used();
    let nanos = (after.tv_sec - before.tv_sec) * 1_000_000_000 + after.tv_nsec - before.tv_nsec;
    println!("{:<64}{:9.3} %", "an idle second of a worker, time of the processor", nanos as f64 / 1e7);
}

#[cfg(not(feature = "model"))]
fn main() -> Result<(), Box<dyn Error>> {
    if let Some(directory) = std::env::args_os().nth(1) {
        return own(Path::new(&directory));
    }
    let directory = std::env::temp_dir().join(format!("drtm-costs-{}", std::process::id()));
    let fabric = ShmFabric::join(NoHtm, ShmConfig::new("costs", NodeId(0)).directory(&directory))?;
    let endpoint = fabric.endpoint(NodeId(0))?;
    let mut owner = Command::new(std::env::current_exe()?).arg(&directory).spawn()?;
    block_on(&endpoint, async { while endpoint.next_event().await.presence.here().is_none() {} });
    let verbs = endpoint.during(Phase::Execute);
    let at = |offset| Remote { node: OWNER, region: RegionId(0), offset };
    // Where the owner has put it: the first root, behind the superblock's own words.
    let root = at(Offset::new(8 * 8));
    let offset = block_on(&endpoint, async {
        loop {
            match verbs.read_word(root).await {
                Ok(0) | Err(drtm_rdma::VerbError::UnknownRegion { .. }) => endpoint.yield_now().await,
                other => return other,
            }
        }
    })?;
    let at = at(Offset::new(offset));
    // The same memory without the fabric between.
    let raw = fabric.peer_region(OWNER, RegionId(0)).ok_or("the owner's region")?;
    reads(&endpoint, at, &raw)?;
    calls(&endpoint, at, &raw)?;
    idle(&endpoint);
    drop((endpoint, fabric));
    owner.wait()?;
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

#[cfg(feature = "model")]
fn main() {}
