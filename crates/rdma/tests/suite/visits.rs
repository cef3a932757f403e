//! Visitors of a node over TCP: what they are told where nothing answers them.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use drtm_htm::NoHtm;
use drtm_rdma::{
    Executor, Fabric, NodeId, Phase, TcpVisitor, VisitError,
    rpc::{Procedure, serve},
};

use crate::{
    agent::PATIENCE,
    machines::{Addresses, KEY, join},
};

/// Doubles a number.
enum Double {}

impl Procedure for Double {
    const NUMBER: u16 = 1;
    type Request<'a> = u64;
    type Reply<'a> = u64;
}

/// Asks what node 0 answers, several times on one connection and on several.
fn ask(address: SocketAddr) -> Vec<Result<u64, VisitError>> {
    let mut visitors: Vec<_> =
        (0..3).map(|_| TcpVisitor::connect(address, KEY, PATIENCE).expect("it has the key")).collect();
    let all = (0..30).map(|number| {
        let visitor = &mut visitors[number as usize % 3];
        visitor.call::<Double, _>(&number, PATIENCE, |doubled| doubled)
    });
    all.collect()
}

#[test]
fn each_visitor_gets_its_own_answers() {
    let fabric = join(&NoHtm, &Addresses::new().config(NodeId(0), 1));
    let asked = [0; 2].map(|_| {
        thread::spawn({
            let address = fabric.address();
            move || ask(address)
        })
    });
    let endpoint = fabric.endpoint(NodeId(0)).expect("room");
    let mut executor = Executor::new(&endpoint);
    executor.serve(serve(endpoint.during(Phase::Other), |call| {
        assert_eq!(call.from(), NodeId::VISITOR);
        call.answer::<Double>(|number| Ok(2 * number))
    }));
    executor.spawn(endpoint.until(|| asked.iter().all(thread::JoinHandle::is_finished)));
    executor.run();
    for asked in asked {
        let doubled: Vec<u64> = asked.join().expect("no panic").into_iter().map(|one| one.expect("it is")).collect();
        assert_eq!(doubled, (0..30).map(|number| 2 * number).collect::<Vec<_>>());
    }
}

#[test]
fn what_is_wrong_is_said() {
    let connect = |address, within| TcpVisitor::connect(address, KEY, within).map(drop);
    let fabric = join(&NoHtm, &Addresses::new().config(NodeId(0), 1));
    let address = fabric.address();
    assert_eq!(TcpVisitor::connect(address, [8; 32], PATIENCE).err(), Some(VisitError::Refused { address }));
    // The node runs, and no endpoint of it receives.
    let soon = Duration::from_millis(50);
    let mut visitor = TcpVisitor::connect(address, KEY, PATIENCE).expect("it has the key");
    let silent = visitor.call::<Double, _>(&1, soon, |doubled| doubled);
    assert_eq!(silent, Err(VisitError::Silent { address, within: soon }));
    fabric.leave();
    let ended = visitor.call::<Double, _>(&1, PATIENCE, |doubled| doubled);
    assert_eq!(ended, Err(VisitError::Ended { address }));

    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    assert_eq!(connect(address, soon), Err(VisitError::Silent { address, within: soon }));
    let older = thread::spawn(move || {
        // The one before has gone.
        drop(listener.accept().expect("a visitor"));
        let (mut stream, _) = listener.accept().expect("a visitor");
        stream.read_exact(&mut [0; 8]).expect("a preamble");
        stream.write_all(b"drtm\x03\0\0\0").expect("it is heard");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let said = connect(address, PATIENCE).expect_err("another version");
    assert!(matches!(said, VisitError::Version { theirs: 3, ours: 5, .. }), "{said}");
    older.join().expect("no panic");
    assert_eq!(connect(address, PATIENCE), Err(VisitError::Absent { address }));
}
