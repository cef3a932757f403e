//! What an operator sees of a cluster: its members, and what each shard has.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use drtm_htm::Native;
use drtm_membership::Directory;
use drtm_rdma::LocalFabric;
use drtm_txn::{
    Builder,
    cluster::{Cluster, ClusterBuilder, InProcess},
};

/// A directory of a test, which is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("drtm-status-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn membership(&self) -> Arc<Directory> {
        Arc::new(Directory::open(&self.0.join("view")).expect("a directory"))
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn of(nodes: u16) -> ClusterBuilder<InProcess> {
    Cluster::builder().nodes(nodes).database(Builder::new().memory(16 << 20))
}

#[test]
fn three_nodes_that_agree_on_the_view_have_a_backup_each() {
    let backups = |builder: ClusterBuilder<InProcess>| {
        let nodes: Vec<Cluster<LocalFabric<Native>>> = builder.start().expect("memory");
        let view = nodes[0].node().view();
        let mut backups: Vec<usize> = view.placements().iter().map(|at| at.backups.len()).collect();
        backups.dedup();
        backups
    };
    let agreeing = |name: &str, nodes| {
        let place = Place::new(name);
        let membership = place.membership();
        (place, of(nodes).membership(membership))
    };
    let (_place, three) = agreeing("three", 3);
    assert_eq!(backups(three), [1]);
    let (_place, none) = agreeing("none", 3);
    assert_eq!(backups(none.backups(0)), [0]);
    let (_place, two) = agreeing("two", 2);
    assert_eq!(backups(two), [0], "no majority is left of two that have lost one");
    assert_eq!(backups(of(3)), [0], "none takes over where nothing agrees on it");
}
