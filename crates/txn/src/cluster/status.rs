//! What a cluster's node sees of all: the view, its members, and what each shard has.
//!
//! The words here are those of the command `drtm cluster status`, and of its JSON.

#[cfg(feature = "tcp")]
mod visit;

#[cfg(feature = "tcp")]
pub use self::visit::Operator;

use std::fmt;

use drtm_rdma::{
    Incarnation, NodeId,
    rpc::{Decode, DecodeError, Encode, Reader},
};

use super::{
    shard::ShardId,
    view::{Lost, Placement},
};

/// A cluster, as one of its nodes sees it. [`Display`](fmt::Display) shows it as text; with the
/// feature `serde`, it can be serialized.
///
/// # Example
///
/// ```
/// use std::time::Duration;
///
/// use drtm::{
///     Pod, TableDef, Transaction,
///     cluster::{Cluster, MemberState, Partition, ShardState},
/// };
///
/// const ACCOUNTS: TableDef<u64, Pod<i64>> = TableDef::hash("accounts");
///
/// let mut builder = Cluster::builder().nodes(2).shards(2);
/// let accounts = builder.table(ACCOUNTS, Partition::by("number", |number| *number));
/// let nodes = builder.start()?;
/// nodes[0].transact(async move |tx| tx.put(accounts, 3, &100).await).wait()?;
/// let status = nodes[0].status(Duration::from_secs(10)).wait()?;
/// assert_eq!((status.view, status.members[1].state), (1, MemberState::Here));
/// let shard = &status.shards[1];
/// assert_eq!((shard.state, shard.primary), (ShardState::Ok, nodes[1].node().id()));
/// // A key of eight bytes, and a value of as many.
/// assert_eq!((shard.rows, shard.bytes), (Some(1), Some(16)));
/// assert!(status.to_string().contains("under-replicated 0"));
/// # Ok::<(), drtm::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ClusterStatus {
    /// The number of the view that the node is in.
    pub view: u32,
    /// The members of that view, and behind them the owners that it is without.
    pub members: Vec<MemberStatus>,
    /// The shards, in the order of their numbers.
    pub shards: Vec<ShardStatus>,
}

/// A member of a cluster: a node that owns shards, or is to.
///
/// # Example
///
/// See [`ClusterStatus`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct MemberStatus {
    /// Which node it is.
    #[cfg_attr(feature = "serde", serde(serialize_with = "numbers::node"))]
    pub node: NodeId,
    /// Where it is reached, if that is known.
    pub address: Option<String>,
    /// Which of its lives is a member, or was met last. `None` if none is known.
    #[cfg_attr(feature = "serde", serde(serialize_with = "numbers::incarnation"))]
    pub incarnation: Option<Incarnation>,
    /// Whether it is here.
    pub state: MemberState,
}

/// Whether a member is here.
///
/// # Example
///
/// See [`ClusterStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum MemberState {
    /// It is here.
    Here,
    /// It is silent. It may be stopped, or cut off.
    Suspected,
    /// It has died, or was disconnected.
    Died,
    /// It has left in good order.
    Left,
    /// It was never here.
    Absent,
    /// The view is without it.
    Out,
}

/// What a shard has.
///
/// # Example
///
/// See [`ClusterStatus`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct ShardStatus {
    /// Which shard it is.
    #[cfg_attr(feature = "serde", serde(serialize_with = "numbers::shard"))]
    pub shard: ShardId,
    /// Whether it is served, and by enough replicas.
    pub state: ShardState,
    /// The node that serves it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "numbers::node"))]
    pub primary: NodeId,
    /// The nodes that back it up.
    #[cfg_attr(feature = "serde", serde(serialize_with = "numbers::nodes"))]
    pub backups: Vec<NodeId>,
    /// The nodes that copy its rows, and back it up then.
    #[cfg_attr(feature = "serde", serde(serialize_with = "numbers::nodes"))]
    pub learners: Vec<NodeId>,
    /// The rows of tables that its primary has, without entries of indexes. `None` if that has not
    /// counted them in time.
    pub rows: Option<u64>,
    /// The bytes of their keys and values, and of those of entries of indexes.
    pub bytes: Option<u64>,
}

/// Whether a shard is served, and by how many replicas.
///
/// # Example
///
/// See [`ClusterStatus`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum ShardState {
    /// Its primary serves it, and it has as many backups as each shard is to have.
    Ok,
    /// Its primary serves it, with fewer backups.
    UnderReplicated,
    /// No node serves it at the moment, and a replica may be left: the nodes change to a view in
    /// which that serves it, or wait for it.
    Recovering,
    /// All nodes that had its rows are gone.
    Lost,
}

/// What is known of a node's life that is to have a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Here,
    /// It may come back with what it has.
    Silent,
    /// It has ended.
    Gone,
}

impl ShardState {
    const ALL: [Self; 4] = [Self::Ok, Self::UnderReplicated, Self::Recovering, Self::Lost];

    /// Returns the state of a shard that is to have so many replicas, in a view that is open or
    /// not.
    pub(super) fn of(placed: &Placement, replicas: usize, is_open: bool, life: impl Fn(NodeId) -> Life) -> Self {
        match placed.lost {
            Some(Lost::GivenUp) => return Self::Recovering,
            Some(_) => return Self::Lost,
            None => {}
        }
        if placed.replicas().all(|node| life(node) == Life::Gone) {
            return Self::Lost;
        }
        if !is_open || life(placed.primary) != Life::Here {
            return Self::Recovering;
        }
        match placed.replicas().filter(|node| life(*node) == Life::Here).count() < replicas {
            true => Self::UnderReplicated,
            false => Self::Ok,
        }
    }

    /// Returns its name, as JSON has it.
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::UnderReplicated => "under-replicated",
            Self::Recovering => "recovering",
            Self::Lost => "lost",
        }
    }
}

impl MemberState {
    const ALL: [Self; 6] = [Self::Here, Self::Suspected, Self::Died, Self::Left, Self::Absent, Self::Out];

    /// Returns its name, as JSON has it.
    const fn name(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Suspected => "suspected",
            Self::Died => "died",
            Self::Left => "left",
            Self::Absent => "absent",
            Self::Out => "out",
        }
    }
}

impl fmt::Display for ShardState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Display for MemberState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Shows nodes by their numbers.
fn listed(nodes: &[NodeId]) -> String {
    match nodes.is_empty() {
        true => "-".to_owned(),
        false => nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(","),
    }
}

fn or_dash(number: Option<u64>) -> String {
    number.map_or("-".to_owned(), |number| number.to_string())
}

impl fmt::Display for ClusterStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {}, {} members, {} shards:", self.view, self.members.len(), self.shards.len())?;
        for (state, number) in ShardState::ALL.into_iter().zip(0..) {
            let count = self.shards.iter().filter(|shard| shard.state == state).count();
            write!(f, "{} {state} {count}", if number > 0 { "," } else { "" })?;
        }
        write!(f, "\n\n{:>6}  {:<9}  {:>11}  address", "member", "state", "incarnation")?;
        for MemberStatus { node, address, incarnation, state } in &self.members {
            let incarnation = or_dash(incarnation.map(|incarnation| incarnation.0.into()));
            write!(f, "\n{:>6}  {state:<9}  {incarnation:>11}  {}", node.0, address.as_deref().unwrap_or("-"))?;
        }
        write!(f, "\n\n{:>6}  {:<16}  {:>7}  {:<8}  {:<8}", "shard", "state", "primary", "backups", "learners")?;
        write!(f, "  {:>12}  {:>15}", "rows", "bytes")?;
        for ShardStatus { shard, state, primary, backups, learners, rows, bytes } in &self.shards {
            let (backups, learners) = (listed(backups), listed(learners));
            write!(f, "\n{:>6}  {state:<16}  {:>7}  {backups:<8}  {learners:<8}", shard.0, primary.0)?;
            write!(f, "  {:>12}  {:>15}", or_dash(*rows), or_dash(*bytes))?;
        }
        Ok(())
    }
}

/// Numbers of nodes, shards and lives, as JSON has them.
#[cfg(feature = "serde")]
mod numbers {
    use drtm_rdma::{Incarnation, NodeId};
    use serde::{Serialize as _, Serializer};

    use super::ShardId;

    pub(super) fn node<S: Serializer>(node: &NodeId, serializer: S) -> Result<S::Ok, S::Error> {
        node.0.serialize(serializer)
    }

    pub(super) fn nodes<S: Serializer>(nodes: &[NodeId], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(nodes.iter().map(|node| node.0))
    }

    pub(super) fn shard<S: Serializer>(shard: &ShardId, serializer: S) -> Result<S::Ok, S::Error> {
        shard.0.serialize(serializer)
    }

    pub(super) fn incarnation<S: Serializer>(life: &Option<Incarnation>, serializer: S) -> Result<S::Ok, S::Error> {
        life.map(|life| life.0).serialize(serializer)
    }
}

impl Encode for ClusterStatus {
    fn encode(&self, into: &mut Vec<u8>) {
        (self.view, self.members.len() as u32, self.shards.len() as u32).encode(into);
        for MemberStatus { node, address, incarnation, state } in &self.members {
            (node.0, address.as_deref(), incarnation.map(|life| life.0), *state as u8).encode(into);
        }
        for ShardStatus { shard, state, primary, backups, learners, rows, bytes } in &self.shards {
            (shard.0, *state as u8, primary.0, backups.len() as u16, learners.len() as u16).encode(into);
            backups.iter().chain(learners).for_each(|node| node.0.encode(into));
            (*rows, *bytes).encode(into);
        }
    }
}

impl<'a> Decode<'a> for ClusterStatus {
    fn decode(from: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let invalid = DecodeError::Invalid { what: "state" };
        let (view, members, shards): (u32, u32, u32) = Decode::decode(from)?;
        let member = |_| {
            let (node, address, incarnation, state): (u16, Option<&str>, Option<u32>, u8) = Decode::decode(from)?;
            let state = *MemberState::ALL.get(usize::from(state)).ok_or(invalid)?;
            let (address, incarnation) = (address.map(str::to_owned), incarnation.map(Incarnation));
            Ok(MemberStatus { node: NodeId(node), address, incarnation, state })
        };
        let members = (0..members).map(member).collect::<Result<_, DecodeError>>()?;
        let shard = |_| {
            let (shard, state, primary, backups, learners): (u16, u8, u16, u16, u16) = Decode::decode(from)?;
            let state = *ShardState::ALL.get(usize::from(state)).ok_or(invalid)?;
            let mut nodes = |count| (0..count).map(|_| u16::decode(from).map(NodeId)).collect::<Result<_, _>>();
            let (backups, learners) = (nodes(backups)?, nodes(learners)?);
            let (rows, bytes) = Decode::decode(from)?;
            Ok(ShardStatus { shard: ShardId(shard), state, primary: NodeId(primary), backups, learners, rows, bytes })
        };
        let shards = (0..shards).map(shard).collect::<Result<_, DecodeError>>()?;
        Ok(Self { view, members, shards })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(primary: u16, backups: &[u16]) -> Placement {
        let backups = backups.iter().copied().map(NodeId).collect();
        Placement { primary: NodeId(primary), backups, learners: vec![NodeId(9)], lost: None }
    }

    fn sample() -> ClusterStatus {
        let [here, died] = [(0, MemberState::Here, Some("10.0.0.1:7000")), (1, MemberState::Died, None)].map(
            |(node, state, address): (u16, _, Option<&str>)| MemberStatus {
                node: NodeId(node),
                address: address.map(str::to_owned),
                incarnation: address.map(|_| Incarnation(17)),
                state,
            },
        );
        let shard = |(shard, state, rows): (u16, ShardState, Option<u64>)| ShardStatus {
            shard: ShardId(shard),
            state,
            primary: NodeId(0),
            backups: vec![NodeId(1), NodeId(2)],
            learners: Vec::new(),
            rows,
            bytes: rows.map(|rows| 16 * rows),
        };
        let shards = [(0, ShardState::Ok, Some(3)), (1, ShardState::UnderReplicated, None)];
        ClusterStatus { view: 4, members: vec![here, died], shards: shards.map(shard).to_vec() }
    }

    #[test]
    fn a_shard_is_what_its_replicas_are() {
        let of = |placed: &Placement, lives: [Life; 3], is_open| {
            ShardState::of(placed, 2, is_open, |node| lives[usize::from(node.0)])
        };
        let (two, one) = (placed(0, &[1]), placed(0, &[]));
        use Life::{Gone, Here, Silent};
        assert_eq!(of(&two, [Here, Here, Gone], true), ShardState::Ok);
        assert_eq!(of(&two, [Here, Here, Gone], false), ShardState::Recovering, "the view changes");
        assert_eq!(of(&one, [Here, Here, Here], true), ShardState::UnderReplicated);
        for life in [Silent, Gone] {
            assert_eq!(of(&two, [Here, life, Here], true), ShardState::UnderReplicated);
            assert_eq!(of(&two, [life, Here, Here], true), ShardState::Recovering);
        }
        assert_eq!(of(&two, [Gone, Silent, Here], true), ShardState::Recovering, "it may come back");
        assert_eq!(of(&two, [Gone, Gone, Here], true), ShardState::Lost);
        assert_eq!(of(&one, [Gone, Here, Here], false), ShardState::Lost);
    }

    #[test]
    fn the_text_has_all_of_it() {
        let text = "\
view 4, 2 members, 2 shards: ok 1, under-replicated 1, recovering 0, lost 0

member  state      incarnation  address
     0  here                17  10.0.0.1:7000
     1  died                 -  -

 shard  state             primary  backups   learners          rows            bytes
     0  ok                      0  1,2       -                    3               48
     1  under-replicated        0  1,2       -                    -                -";
        assert_eq!(sample().to_string(), text);
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(ClusterStatus::decode(&mut reader), Ok(sample()));
        assert_eq!(reader.finish(), Ok(()));
        for length in 0..bytes.len() {
            assert!(ClusterStatus::decode(&mut Reader::new(&bytes[..length])).is_err());
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] = !other[at];
            let _ = ClusterStatus::decode(&mut Reader::new(&other));
        }
    }
}
