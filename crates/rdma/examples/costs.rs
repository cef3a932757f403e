//! What the in-process fabric and the executor cost, when perfect: nanoseconds for each operation,
//! by the wall clock.
//!
//! ```text
//! cargo run --profile bench -p drtm-rdma --example costs
//! ```

#[cfg(not(feature = "model"))]
use {
    drtm_htm::{Engine, NoHtm},
    drtm_rdma::{Endpoint, Fabric, LocalConfig, LocalFabric, LocalPort, NodeId, Phase, Region, Remote, block_on, run},
    std::{error::Error, hint::black_box, sync::Arc, time::Instant},
};

#[cfg(not(feature = "model"))]
const OPERATIONS: usize = 2_000_000;

/// The best of several runs.
#[cfg(not(feature = "model"))]
fn cost(what: &str, mut run: impl FnMut()) {
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_nanos() as f64 / OPERATIONS as f64
        })
        .fold(f64::INFINITY, f64::min);
    println!("{what:<60}{best:8.1} ns");
}

#[cfg(not(feature = "model"))]
fn with_coroutines(endpoint: &Endpoint<LocalPort<NoHtm>>, at: Remote, coroutines: usize) {
    let verbs = endpoint.during(Phase::Execute);
    let each = OPERATIONS / coroutines;
    for words in [1, 8, 16, 64] {
        cost(&format!("READ of {words} words, {coroutines} coroutines"), || {
            run(endpoint, coroutines, |_| async {
                for _ in 0..each {
                    black_box(verbs.read(at, words).await.is_ok());
                }
            });
        });
    }
    cost(&format!("WRITE of 8 words, {coroutines} coroutines"), || {
        run(endpoint, coroutines, |_| async {
            for _ in 0..each {
                black_box(verbs.write(at, &[1; 8]).await.is_ok());
            }
        });
    });
    cost(&format!("COMPARE-AND-SWAP, {coroutines} coroutines"), || {
        run(endpoint, coroutines, |_| async {
            for _ in 0..each {
                black_box(verbs.compare_swap(at, 1, 1).await.is_ok());
            }
        });
    });
    cost(&format!("READ of 8 words, in a batch of 4, {coroutines} coroutines"), || {
        run(endpoint, coroutines, |_| async {
            for _ in 0..each / 4 {
                let mut batch = verbs.batch();
                let reads = [0; 4].map(|_| batch.read(at, 8));
                batch.ring();
                for read in reads.into_iter().flatten() {
                    black_box(read.await.is_ok());
                }
            }
        });
    });
    cost(&format!("a switch (yield_now), {coroutines} coroutines"), || {
        run(endpoint, coroutines, |_| async {
            for _ in 0..each {
                endpoint.yield_now().await;
            }
        });
    });
}

#[cfg(not(feature = "model"))]
fn main() -> Result<(), Box<dyn Error>> {
    let fabric = LocalFabric::new(2, LocalConfig::perfect());
    let memory = Arc::new(Region::anonymous(NoHtm, 1 << 20)?);
    let offset = memory.extend(4096, 4096)?;
    let at = Remote { node: NodeId(1), region: fabric.register(NodeId(1), Arc::clone(&memory))?, offset };
    let endpoint = fabric.endpoint(NodeId(0))?;

    let words = memory.words(offset, 8)?;
    cost("8 loads, for comparison", || {
        for _ in 0..OPERATIONS {
            black_box(words.iter().map(|word| NoHtm.load(word)).sum::<u64>());
        }
    });
    cost("COMPARE-AND-SWAP by the processor, for comparison", || {
        for _ in 0..OPERATIONS {
            black_box(NoHtm.compare_exchange(&words[0], 1, 1).is_ok());
        }
    });
    for coroutines in [1, 8] {
        with_coroutines(&endpoint, at, coroutines);
    }
    cost("a call to the own node and its reply", || {
        let verbs = endpoint.during(Phase::Execute);
        let mut executor = drtm_rdma::Executor::new(&endpoint);
        executor.serve(verbs.serve(|_from, request, reply| reply.extend_from_slice(request)));
        executor.spawn(async move {
            for _ in 0..OPERATIONS {
                black_box(verbs.call(NodeId(0), &[1; 32]).await.is_ok());
            }
        });
        executor.run();
    });
    cost("block_on of nothing", || {
        for _ in 0..OPERATIONS {
            block_on(&endpoint, async {});
        }
    });
    Ok(())
}

#[cfg(feature = "model")]
fn main() {}
