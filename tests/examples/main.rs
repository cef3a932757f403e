//! Examples that check themselves, run on less.

#[cfg(feature = "tcp")]
#[path = "../../examples/machines.rs"]
#[expect(dead_code, reason = "its `main` is the example's own")]
mod machines;
#[path = "../../examples/session_cache.rs"]
#[expect(dead_code, reason = "its `main` is the example's own")]
mod session_cache;
#[path = "../../examples/shop.rs"]
#[expect(dead_code, reason = "its `main` is the example's own")]
mod shop;
#[path = "../../examples/timeseries.rs"]
#[expect(dead_code, reason = "its `main` is the example's own")]
mod timeseries;

#[test]
fn a_shop_sells_what_it_has() {
    assert_eq!(shop::run(3, 500).expect("there is stock"), 1_500);
}

#[test]
fn measurements_are_kept_for_an_hour() {
    assert_eq!(timeseries::run(3, 100).expect("there is memory"), 18_000);
    assert_eq!(timeseries::run(1, 10).expect("there is memory"), 600);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn sessions_end_when_they_should() {
    assert_eq!(session_cache::run(1_000, 5).await.expect("there is memory"), 5_000);
}

#[cfg(feature = "tcp")]
#[test]
fn machines_lose_no_money() {
    let (sums, expected) = machines::run(3, 60).expect("three nodes");
    assert_eq!(sums, [expected; 3]);
}
