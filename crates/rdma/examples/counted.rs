//! One kind of operation on a fabric, so often: for counting its instructions. See
//! `scripts/verb-cost`.
//!
//! ```text
//! cargo run --profile bench -p drtm-rdma --example counted -- local read 1000
//! cargo run --profile bench -p drtm-rdma --example counted -- shm read 1000
//! ```
//!
//! A fourth argument is the number of coroutines, which is 8 without it.

#[cfg(not(feature = "model"))]
use {
    drtm_htm::NoHtm,
    drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, ShmConfig, ShmFabric, run},
    std::{error::Error, hint::black_box, sync::Arc},
};

#[cfg(not(feature = "model"))]
const COROUTINES: &str = "8";

#[cfg(not(feature = "model"))]
fn measure<F: Fabric>(
    fabric: &F,
    at: Remote,
    what: &str,
    (each, coroutines): (usize, usize),
) -> Result<(), Box<dyn Error>> {
    let endpoint = fabric.endpoint(NodeId(0))?;
    let verbs = endpoint.during(Phase::Execute);
    match what {
        "read" => drop(run(&endpoint, coroutines, |_| async {
            for _ in 0..each {
                black_box(verbs.read(at, 8).await.is_ok());
            }
        })),
        "write" => drop(run(&endpoint, coroutines, |_| async {
            for _ in 0..each {
                black_box(verbs.write(at, &[1; 8]).await.is_ok());
            }
        })),
        "swap" => drop(run(&endpoint, coroutines, |_| async {
            for _ in 0..each {
                black_box(verbs.compare_swap(at, 1, 1).await.is_ok());
            }
        })),
        "single" => drop(run(&endpoint, coroutines, |_| async {
            for _ in 0..each {
                let mut batch = verbs.batch();
                let read = batch.read(at, 8);
                batch.ring();
                if let Ok(read) = read {
                    black_box(read.await.is_ok());
                }
            }
        })),
        "batch" => drop(run(&endpoint, coroutines, |_| async {
            for _ in 0..each / 4 {
                let mut batch = verbs.batch();
                let reads = [0; 4].map(|_| batch.read(at, 8));
                batch.ring();
                for read in reads.into_iter().flatten() {
                    black_box(read.await.is_ok());
                }
            }
        })),
        "switch" => drop(run(&endpoint, coroutines, |_| async {
            for _ in 0..each {
                endpoint.yield_now().await;
            }
        })),
        "call" => {
            let mut executor = Executor::new(&endpoint);
            executor.serve(verbs.serve(|_from, request, reply| reply.extend_from_slice(request)));
            for _ in 0..coroutines {
                executor.spawn(async move {
                    for _ in 0..each {
                        black_box(verbs.call(NodeId(0), &[1; 32]).await.is_ok());
                    }
                });
            }
            executor.run();
        }
        other => return Err(format!("no operation {other:?}: read, write, swap, single, batch, switch or call").into()),
    }
    Ok(())
}

#[cfg(not(feature = "model"))]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [fabric, what, count, coroutines @ ..] = &arguments[..] else {
        return Err("name a fabric, an operation and a number".into());
    };
    let coroutines: usize = coroutines.first().map_or(COROUTINES, String::as_str).parse()?;
    let each = (count.parse::<usize>()? / coroutines, coroutines);
    let owner = NodeId(1);
    if fabric == "local" {
        let fabric = LocalFabric::new(2, LocalConfig::perfect());
        let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
        let offset = memory.extend(4096, 4096)?;
        let at = Remote { node: owner, region: fabric.register(owner, memory)?, offset };
        return measure(&fabric, at, what, each);
    }
    // Two members of a group in one process: the verbs are the same as between two.
    let directory = std::env::temp_dir().join(format!("drtm-counted-{}", std::process::id()));
    let join = |node| ShmFabric::join(NoHtm, ShmConfig::new("counted", NodeId(node)).directory(&directory));
    let (fabric, other) = (join(0)?, join(1)?);
    let memory = Arc::new(Region::shared(NoHtm, 1 << 20)?);
    let offset = memory.extend(4096, 4096)?;
    let at = Remote { node: owner, region: other.register(owner, memory)?, offset };
    let outcome = measure(&fabric, at, what, each);
    drop((fabric, other));
    std::fs::remove_dir_all(&directory)?;
    outcome
}

#[cfg(feature = "model")]
fn main() {}
