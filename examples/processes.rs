//! Three processes and one hash table. Two peers look up and update rows in the owner's memory by
//! one-sided verbs, and insert rows by messages.
//!
//! ```text
//! cargo run --release --example processes
//! ```
//!
//! The program starts itself twice more. At the end, the owner checks that every update and every
//! insertion is in its table.

use std::{
    error::Error,
    path::Path,
    process::{Child, Command, ExitCode},
    sync::Arc,
};

use drtm::{
    htm::NoHtm,
    kv::{
        HashConfig, HashPeer, HashTable, Holder, Inline, KvTable, Leases, Look, RecordPeer, Service, Store, TableId,
        TablePeer,
    },
    rdma::{
        Executor, Fabric, NodeId, Offset, Phase, Port, Region, RegionId, Remote, ShmConfig, ShmFabric, Verbs, block_on,
    },
};

const OWNER: NodeId = NodeId(0);
const PEERS: [NodeId; 2] = [NodeId(1), NodeId(2)];
const TABLE: TableId = TableId(1);

/// Counters that all peers increment, and the number of increments of each peer.
const COUNTERS: u64 = 100;
const ADDITIONS: u64 = 20_000;
/// Rows that each peer inserts.
const INSERTIONS: u64 = 1_000;

/// A peer's first message, distinct from any table request: asks for the table's location.
const WHERE: &[u8] = b"where is the table?";

fn config(directory: &Path, node: NodeId) -> ShmConfig {
    ShmConfig::new("example", node).directory(directory)
}

fn own(directory: &Path) -> Result<(), Box<dyn Error>> {
    let fabric = ShmFabric::join(NoHtm, config(directory, OWNER))?;
    let memory = Arc::new(Region::shared(NoHtm, 1 << 30)?);
    let region = fabric.register(OWNER, Arc::clone(&memory))?;
    let store = Store::in_region_of(OWNER, 0, memory)?;
    let table: HashTable<NoHtm> = store.hash_table(HashConfig::default().for_peers())?;
    let mut worker = store.worker()?;
    for counter in 0..COUNTERS {
        table.insert(&mut worker, counter, &0_u64.to_le_bytes())?;
    }
    let at = table.location();
    let mut service = Service::new(&store)?.with(TABLE, &table)?;
    let endpoint = fabric.endpoint(OWNER)?;
    let peers = PEERS.iter().map(|peer| start(directory, *peer)).collect::<Result<Vec<Child>, _>>()?;

    let most = endpoint.capabilities().max_message_bytes;
    let mut executor = Executor::new(&endpoint);
    executor.serve(endpoint.during(Phase::Other).serve(|from, request, reply| match request {
        WHERE => {
            reply.extend(region.0.to_le_bytes());
            reply.extend(at.bytes().to_le_bytes());
        }
        request => service.answer(from, request, most, reply),
    }));
    // The owner only serves messages until both peers have finished.
    executor.spawn(async {
        let mut left = PEERS.len();
        while left > 0 {
            let event = endpoint.next_event().await;
            println!("owner: {} is {:?}", event.node, event.presence);
            left -= usize::from(event.presence.here().is_none());
        }
    });
    executor.run();
    for mut peer in peers {
        let status = peer.wait()?;
        if !status.success() {
            return Err(format!("a peer has failed: {status}").into());
        }
    }

    let mut value = [0; 8];
    let mut total = 0;
    for counter in 0..COUNTERS {
        table.get(counter, &mut value)?.ok_or("a counter is gone")?;
        total += u64::from_le_bytes(value);
    }
    let rows = table.count()?;
    println!("owner: {total} additions, {rows} rows, and {} naps", endpoint.naps());
    let peers = PEERS.len() as u64;
    if total != peers * ADDITIONS || rows != COUNTERS + peers * INSERTIONS {
        return Err("something of what the peers did is missing".into());
    }
    Ok(())
}

/// Starts this program again as a peer.
fn start(directory: &Path, peer: NodeId) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(directory).arg(peer.0.to_string()).spawn()
}

fn be_a_peer(directory: &Path, node: NodeId) -> Result<(), Box<dyn Error>> {
    let fabric = ShmFabric::join(NoHtm, config(directory, node))?;
    let endpoint = fabric.endpoint(node)?;
    let verbs = endpoint.during(Phase::Execute);
    let start = endpoint.now();
    let tried = block_on(&endpoint, work(verbs))?;
    let spent = endpoint.counters().total();
    println!(
        "{node}: {ADDITIONS} additions in {tried} tries and {INSERTIONS} insertions in {:?}: {} one-sided operations, {} calls",
        endpoint.now().since(start),
        spent.operations(),
        spent.calls,
    );
    Ok(())
}

/// Increments counters and inserts rows. Returns the number of attempts of the increments.
async fn work<P: Port>(verbs: Verbs<'_, P>) -> Result<u64, Box<dyn Error>> {
    let node = verbs.endpoint().node();
    let answer = verbs.call(OWNER, WHERE).await?;
    let (region, offset) = answer.split_at_checked(2).ok_or("a short answer")?;
    let region = RegionId(u16::from_le_bytes(region.try_into()?));
    let at = Remote { node: OWNER, region, offset: Offset::new(u64::from_le_bytes(offset.try_into()?)) };
    let lookup = HashPeer::<Inline>::open(verbs, at).await?;
    let records = RecordPeer::<Inline>::open(verbs, at, TABLE).await?;
    let rows = TablePeer::<Inline>::new(OWNER, TABLE);

    let mut rng = fastrand::Rng::with_seed(u64::from(node.0));
    let me = Holder::new(u8::try_from(node.0)?, 0, 0, 0);
    let mut tries = 0;
    for addition in 0..ADDITIONS {
        let key = rng.u64(0..COUNTERS);
        let location = lookup.find(verbs, key).await?.ok_or("a counter is gone")?;
        let mut value = Vec::new();
        loop {
            tries += 1;
            // The other peer may hold the lock: then retry.
            let locked = records.lock(verbs, location, key, (me, Leases::None), &mut value).await?;
            let Look::Found(lock) = locked else { continue };
            let sum = u64::from_le_bytes(value.as_slice().try_into()?) + 1;
            records.write(verbs, lock, &sum.to_le_bytes()).await.map_err(|unwritten| unwritten.error)?;
            break;
        }
        if addition % (ADDITIONS / INSERTIONS) == 0 {
            let new = u64::from(node.0) << 32 | addition;
            rows.insert(verbs, new, &addition.to_le_bytes()).await?.ok_or("it is there already")?;
            lookup.find(verbs, new).await?.ok_or("it cannot be found")?;
        }
    }
    Ok(tries)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.as_slice() {
        [directory, node] => match node.parse() {
            Ok(node) => be_a_peer(Path::new(directory), NodeId(node)),
            Err(error) => Err(error.into()),
        },
        _ => {
            let directory = std::env::temp_dir().join(format!("drtm-processes-{}", std::process::id()));
            let outcome = own(&directory);
            // The directory is not needed any more.
            let _ = std::fs::remove_dir_all(&directory);
            outcome
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
