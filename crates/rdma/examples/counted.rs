//! One kind of operation on the in-process fabric, so often: for counting its instructions. See `scripts/verb-cost`.
//!
//! ```text
//! cargo run --release -p drtm-rdma --example counted -- read 1000
//! ```

#[cfg(not(drtm_loom))]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    use std::{hint::black_box, sync::Arc};

    use drtm_htm::NoHtm;
    use drtm_rdma::{Executor, Fabric, LocalConfig, LocalFabric, NodeId, Phase, Region, Remote, run};

    const COROUTINES: usize = 8;

    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().ok_or("name an operation: read, write, swap, batch, switch or call")?;
    let each = arguments.next().ok_or("say how often")?.parse::<usize>()? / COROUTINES;

    let fabric = LocalFabric::new(2, LocalConfig::perfect());
    let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
    let offset = memory.extend(4096, 4096)?;
    let at = Remote { node: NodeId(1), region: fabric.register(NodeId(1), memory)?, offset };
    let endpoint = fabric.endpoint(NodeId(0))?;
    let verbs = endpoint.during(Phase::Execute);
    match what.as_str() {
        "read" => drop(run(&endpoint, COROUTINES, |_| async {
            for _ in 0..each {
                black_box(verbs.read(at, 8).await.is_ok());
            }
        })),
        "write" => drop(run(&endpoint, COROUTINES, |_| async {
            for _ in 0..each {
                black_box(verbs.write(at, &[1; 8]).await.is_ok());
            }
        })),
        "swap" => drop(run(&endpoint, COROUTINES, |_| async {
            for _ in 0..each {
                black_box(verbs.compare_swap(at, 1, 1).await.is_ok());
            }
        })),
        "batch" => drop(run(&endpoint, COROUTINES, |_| async {
            for _ in 0..each / 4 {
                let mut batch = verbs.batch();
                let reads = [0; 4].map(|_| batch.read(at, 8));
                batch.ring();
                for read in reads.into_iter().flatten() {
                    black_box(read.await.is_ok());
                }
            }
        })),
        "switch" => drop(run(&endpoint, COROUTINES, |_| async {
            for _ in 0..each {
                endpoint.yield_now().await;
            }
        })),
        "call" => {
            let mut executor = Executor::new(&endpoint);
            executor.serve(verbs.serve(|_from, request, reply| reply.extend_from_slice(request)));
            for _ in 0..COROUTINES {
                executor.spawn(async move {
                    for _ in 0..each {
                        black_box(verbs.call(NodeId(0), &[1; 32]).await.is_ok());
                    }
                });
            }
            executor.run();
        }
        other => return Err(format!("no operation {other:?}: read, write, swap, batch, switch or call").into()),
    }
    Ok(())
}

#[cfg(drtm_loom)]
fn main() {}
