use drtm_rdma::rpc::{Decode as _, Encode as _, Reader};

use super::*;

fn owners() -> [NodeId; 3] {
    [3, 1, 4].map(NodeId)
}

#[test]
fn the_next_owners_are_backups() {
    let view = View::fixed(&owners(), 7, 2).expect("a view");
    assert_eq!(view.primary(ShardId(0)), Some(NodeId(3)));
    assert_eq!(view.backups(ShardId(0)), [1, 4].map(NodeId));
    assert_eq!(view.backups(ShardId(2)), [3, 1].map(NodeId));
    assert_eq!(view.primary(ShardId(6)), Some(NodeId(3)), "they are dealt in turn");
    assert_eq!(view.primary(ShardId(7)), None);
    assert_eq!(view.primary(ShardId::HERE), None);
    assert_eq!(view.placement(1), Some(&view.placements()[4]), "so are groups");
    assert_eq!(view.placement(3), None);
}

#[test]
fn one_request_for_each_head_reaches_all_shards() {
    let view = View::fixed(&owners(), 24, 0).expect("a view");
    assert_eq!(view.heads, [0, 1, 2].map(ShardId));
    assert_eq!([0, 4, 23].map(|shard| view.head(ShardId(shard))), [0, 1, 2].map(ShardId));
    assert_eq!(view.head(ShardId::HERE), ShardId::HERE);
    // An owner without a shard has none.
    assert_eq!(View::fixed(&owners(), 2, 0).expect("a view").heads, [0, 1].map(ShardId));
    // What one node has of several groups is in as many tables.
    let at_last = Placement { primary: NodeId(4), backups: Vec::new(), learners: Vec::new(), lost: None };
    let next = view.next(view.members().to_vec(), vec![at_last; 24]).expect("a view");
    assert_eq!(next.heads, view.heads);
}

#[test]
fn each_group_has_a_number_for_each_table() {
    let view = View::fixed(&owners(), 7, 0).expect("a view");
    let shards = || (0..3).map(ShardId).chain([ShardId::HERE]);
    let all: Vec<u16> =
        (0..5).flat_map(|table| shards().map(move |shard| (table, shard))).map(|(t, s)| view.store_of(t, s)).collect();
    let mut sorted = all.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<u16>>());
    assert_eq!(view.store_of(2, ShardId(1)), view.store_of(2, ShardId(4)), "of one group");
}

#[test]
fn bad_views_are_refused() {
    let is_bad = |view: Result<View, ClusterError>| matches!(view, Err(ClusterError::BadView { .. }));
    assert!(is_bad(View::fixed(&owners(), 0, 0)));
    assert!(is_bad(View::fixed(&owners(), MOST_SHARDS + 1, 0)));
    assert!(is_bad(View::fixed(&owners(), 3, 3)), "a backup of itself");
    assert!(is_bad(View::fixed(&[], 3, 0)));
    assert!(is_bad(View::fixed(&[NodeId(1), NodeId(1)], 2, 0)));
    let view = View::fixed(&owners(), 3, 1).expect("a view");
    assert!(is_bad(view.next(view.members()[1..].to_vec(), view.placements().to_vec())), "of no member");
    assert!(is_bad(view.next(view.members().to_vec(), view.placements()[1..].to_vec())), "fewer shards");
    let mut apart = View::fixed(&owners(), 6, 1).expect("a view").placements;
    apart[4].backups.clear();
    let view = View::fixed(&owners(), 6, 1).expect("a view");
    assert!(is_bad(view.next(view.members().to_vec(), apart)), "a group at different nodes");
}

#[test]
fn only_a_newer_view_is_installed() {
    let view = View::fixed(&owners(), 3, 1).expect("a view");
    let next = view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
    let current = Current::new(view.clone(), false);
    let told = |told: &View, open| {
        assert_eq!((told, open), (&next, 2));
        Ok(())
    };
    assert!(!current.install(view.clone(), |_, _| panic!("it is not newer")).expect("as many shards"));
    assert!(current.install(next.clone(), told).expect("as many shards"));
    assert_eq!((current.number(), &*current.view()), (2, &next));
    assert!(!current.install(view, |_, _| panic!("it is not newer")).expect("as many shards"));
    assert_eq!(current.number(), 2);
    let other = View::fixed(&owners(), 4, 1).expect("a view");
    assert!(matches!(current.install(other, |_, _| panic!("it is none")), Err(ClusterError::BadView { .. })));
    let other = View::fixed(&owners()[1..], 3, 1).expect("a view");
    assert!(matches!(current.install(other, |_, _| panic!("it is none")), Err(ClusterError::BadView { .. })));
}

#[test]
fn a_view_that_is_closed_opens_with_the_one_that_was_promised() {
    let view = View::fixed(&owners(), 3, 1).expect("a view");
    let next = |view: &View| view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
    let current = Current::new(view.clone(), false);
    assert_eq!((current.suspend(1, || panic!("it is not newer")).ok(), current.served()), (Some(1), 1));
    assert_eq!((current.suspend(3, || Ok(())).ok(), current.number()), (Some(1), 1));
    assert_eq!((current.served(), current.is_between()), (BETWEEN, true));
    let (second, third) = (next(&view), next(&next(&view)));
    let told = |_: &View, open| {
        assert_eq!(open, BETWEEN);
        Ok(())
    };
    assert!(current.install(second, told).expect("as many shards"));
    assert_eq!((current.number(), current.served()), (2, BETWEEN), "another one was promised");
    assert!(current.install(third, |_, _| Ok(())).expect("as many shards"));
    assert_eq!((current.number(), current.served(), current.is_open(3)), (3, 3, true));
}

#[test]
fn a_node_that_closes_serves_in_no_view_for_good() {
    let view = View::fixed(&owners(), 3, 1).expect("a view");
    let next = view.next(view.members().to_vec(), view.placements().to_vec()).expect("a view");
    let current = Current::new(view, false);
    assert_eq!((current.number(), current.served()), (1, 1));
    current.another_closes();
    assert_eq!((current.number(), current.moment() == 1), (1, false));
    current.serve_no_more(|| Ok(())).expect("it is told");
    assert_eq!(current.suspend(2, || Ok(())).ok(), Some(1));
    assert_eq!((current.served(), current.is_between()), (NO_VIEW, true));
    assert!(current.install(next, |_, _| Ok(())).expect("as many shards"));
    assert_eq!((current.number(), current.served()), (2, NO_VIEW));
    assert!(current.is_open(2), "its own transactions go on");
}

#[test]
fn what_is_encoded_is_decoded() {
    let mut view = View::fixed(&owners(), 5, 2).expect("a view");
    view.members[1] =
        Member { address: "[::1]:7".into(), incarnation: Some(Incarnation(9)), ..view.members[1].clone() };
    let mut view = view.with_replaced(NodeId(4), "[::1]:8".parse().expect("an address")).expect("a view");
    for placed in view.placements.iter_mut().step_by(3) {
        *placed = placed.lost_by(Lost::Held(Incarnation(u32::MAX)));
    }
    for placed in view.placements.iter_mut().skip(1).step_by(3) {
        *placed = placed.lost_by(Lost::GivenUp);
    }
    view.has_lost = true;
    let mut bytes = Vec::new();
    view.encode(&mut bytes);
    let mut reader = Reader::new(&bytes);
    assert_eq!(View::decode(&mut reader), Ok(view));
    assert_eq!(reader.finish(), Ok(()));
    // No part of it is a view, and no bytes make it panic.
    for length in 0..bytes.len() {
        assert!(View::decode(&mut Reader::new(&bytes[..length])).is_err());
    }
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] = !other[at];
        let _ = View::decode(&mut Reader::new(&other));
    }
}

#[test]
fn a_shard_without_a_replica_is_lost_once_all_have_ended() {
    let first = View::fixed(&[0, 1, 2, 3].map(NodeId), 4, 1).expect("a view");
    let gone = |node: NodeId| [1, 2].contains(&node.0);
    assert!(
        matches!(first.without(&first, gone, gone), Err(ClusterError::ShardLost { .. })),
        "its owners have not met"
    );
    let named = first.members().iter().map(|member| Member { incarnation: Some(Incarnation(7)), ..member.clone() });
    let view = first.clone().of_lives(named.collect());
    let silent = view.without(&view, gone, |node| node == NodeId(1));
    assert!(matches!(silent, Err(ClusterError::ShardLost { shard: ShardId(1) })), "one may come back");
    let next = view.without(&view, gone, gone).expect("all others have replicas");
    assert!(next.has_lost() && next.is_lost(ShardId(1)) && !next.is_lost(ShardId(0)));
    assert_eq!(next.placements()[1].lost, Some(Lost::Held(Incarnation(7))));
    assert_eq!((next.primary(ShardId(2)), next.serves(NodeId(1), 1)), (Some(NodeId(3)), false));
    // It stays so, whatever becomes of others, and also where its node is a member again.
    let again = next.next(view.members().to_vec(), next.placements().to_vec()).expect("a view");
    let again = again.without(&again, |node| node == NodeId(3), |_| true).expect("all others have replicas");
    assert!(again.is_lost(ShardId(1)) && !again.serves(NodeId(1), 1));
    let mut bad = again.placements().to_vec();
    bad[1].backups = vec![NodeId(0)];
    assert!(matches!(again.next(again.members().to_vec(), bad), Err(ClusterError::BadView { .. })));
}

#[test]
fn a_lost_shard_is_where_its_primary_had_all_rows_last() {
    let first = View::fixed(&[0, 1, 2].map(NodeId), 3, 1).expect("a view");
    let named = first.members().iter().map(|member| Member { incarnation: Some(Incarnation(7)), ..member.clone() });
    let view = first.next(named.collect(), first.placements().to_vec()).expect("a view");
    let configured = view.without(&view, |node| node == NodeId(1), |_| true).expect("all have replicas");
    assert_eq!(configured.primary(ShardId(1)), Some(NodeId(2)));
    let held = |last_whole: &View| {
        let next = configured.without(last_whole, |node| node == NodeId(2), |_| true).expect("all have ended");
        (next.placements()[1].primary, next.placements()[1].lost)
    };
    // Node 2 may not have all that node 1 has acknowledged, unless it was told to be ready.
    assert_eq!(held(&view), (NodeId(1), Some(Lost::Held(Incarnation(7)))));
    assert_eq!(held(&configured), (NodeId(2), Some(Lost::Held(Incarnation(7)))));
}

#[test]
fn all_shards_are_where_their_primaries_had_all_rows_last() {
    let first = View::fixed(&[0, 1, 2].map(NodeId), 3, 1).expect("a view");
    let lives = |life| {
        let named = |member: &Member| Member { incarnation: Some(Incarnation(life)), ..member.clone() };
        first.members().iter().map(named).collect::<Vec<_>>()
    };
    let view = first.next(lives(7), first.placements().to_vec()).expect("a view");
    let configured = view.without(&view, |node| node == NodeId(1), |_| true).expect("all have replicas");
    let anew = configured.begun_anew(&view, lives(8)).expect("a view");
    let held = |node| (NodeId(node), Some(Lost::Held(Incarnation(7))));
    let all = |view: &View| view.placements().iter().map(|at| (at.primary, at.lost)).collect::<Vec<_>>();
    assert_eq!(all(&anew), [0, 1, 2].map(held));
    assert_eq!(all(&configured.begun_anew(&configured, lives(8)).expect("a view")), [0, 2, 2].map(held));
    // What is lost already stays where it is, whatever was whole.
    assert_eq!(all(&anew.begun_anew(&configured, lives(9)).expect("a view")), [0, 1, 2].map(held));
    assert_eq!(anew.holders().count(), 0);
    assert_eq!(configured.holders().collect::<Vec<_>>(), [0, 2].map(NodeId));
}

#[test]
fn a_view_of_another_time_is_not_the_last_one() {
    let first = View::fixed(&[0, 1, 2].map(NodeId), 3, 1).expect("a view");
    let named = |life| first.members().iter().map(move |member| Member { incarnation: Some(life), ..member.clone() });
    let after = |view: &View, life| view.next(named(life).collect(), first.placements().to_vec()).expect("a view");
    let (old, view) = (after(&first, Incarnation(6)), after(&after(&first, Incarnation(7)), Incarnation(7)));
    let configured = view.without(&view, |node| node == NodeId(1), |_| true).expect("all have replicas");
    assert!(view.may_be_last_before(&configured) && configured.may_be_last_before(&configured));
    assert!(!configured.may_be_last_before(&view), "it is later");
    assert!(!old.may_be_last_before(&configured), "it is of other lives");
    assert!(!first.may_be_last_before(&configured), "nothing was served in it");
    let of_others = View::fixed(&[0, 1, 2].map(NodeId), 6, 1).expect("a view");
    let of_others = of_others.next(named(Incarnation(7)).collect(), of_others.placements().to_vec()).expect("a view");
    assert!(!of_others.may_be_last_before(&configured), "it has other shards");
    // A node that joins has no shards yet. It may have been here in another life.
    let joins = Member { node: NodeId(1), address: String::new(), incarnation: Some(Incarnation(8)) };
    let members = configured.members().iter().cloned().chain([joins]).collect();
    let joined = configured.next(members, configured.placements().to_vec()).expect("a view");
    assert!(view.may_be_last_before(&joined));
}

#[test]
fn a_note_comes_back_and_no_other_bytes_are_one() {
    let first = View::fixed(&owners(), 6, 1).expect("a view");
    let view = first.next(first.members().to_vec(), first.placements().to_vec()).expect("a view");
    let note = view.to_note();
    assert_eq!(first.of_note(&note).expect("it is one"), view);
    assert!((0..note.len()).all(|length| first.of_note(&note[..length]).is_err()));
    let of_other_format = [&[2, 0, 0, 0], &note[4..]].concat();
    assert!(first.of_note(&of_other_format).is_err());
    for other in [View::fixed(&owners()[1..], 6, 1), View::fixed(&owners(), 7, 1)] {
        let refused = first.of_note(&other.expect("a view").to_note());
        assert!(matches!(refused, Err(ClusterError::BadView { .. })), "it is of another cluster");
    }
}

#[test]
fn a_node_stays_where_it_was_replaced() {
    let view = View::fixed(&owners(), 3, 1).expect("a view");
    let [before, after] = [7, 8].map(|port| ([10, 0, 0, 4], port).into());
    let next = view.with_replaced(NodeId(1), before).expect("a view");
    let next = next.with_replaced(NodeId(1), after).expect("a view");
    let next = next.next(next.members().to_vec(), next.placements().to_vec()).expect("a view");
    assert_eq!((next.replaced(), next.address_of(NodeId(3))), (&[(NodeId(1), after)][..], None));
}
