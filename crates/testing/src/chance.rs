//! Statistical assertions for tests of random draws. With a fixed seed, a test always passes or
//! always fails.

/// Asserts that a share is within 4.5 standard deviations of the expected one.
#[track_caller]
pub fn assert_share(count: usize, of: usize, expected: f64) {
    let deviation = (expected * (1.0 - expected) / of as f64).sqrt();
    let share = count as f64 / of as f64;
    assert!((share - expected).abs() <= 4.5 * deviation, "{share} where {expected} is expected");
}

/// Asserts that the values between `low` and `high` are drawn uniformly.
#[track_caller]
pub fn assert_uniform(values: impl IntoIterator<Item = u64>, low: u64, high: u64) {
    let mut counts = vec![0; (high - low + 1) as usize];
    for value in values {
        assert!((low..=high).contains(&value), "{value} is not within {low} and {high}");
        counts[(value - low) as usize] += 1;
    }
    assert_distribution(&counts, &vec![1.0 / counts.len() as f64; counts.len()]);
}

/// Asserts by the chi-squared test that counts have these shares. The bound is 4.5 standard
/// deviations of Wilson and Hilferty's normal approximation of the statistic's cube root.
#[track_caller]
pub fn assert_distribution(counts: &[u64], shares: &[f64]) {
    assert_eq!(counts.len(), shares.len());
    let all = counts.iter().sum::<u64>() as f64;
    let statistic: f64 =
        counts.iter().zip(shares).map(|(count, share)| (*count as f64 - share * all).powi(2) / (share * all)).sum();
    let freedom = (counts.len() - 1) as f64;
    let variance = 2.0 / (9.0 * freedom.max(1.0));
    let most = freedom.max(1.0) * (1.0 - variance + 4.5 * variance.sqrt()).powi(3);
    assert!(statistic <= most, "chi-squared is {statistic}, at {freedom} degrees of freedom");
}

#[test]
#[should_panic(expected = "chi-squared")]
fn what_is_not_so_is_noticed() {
    assert_distribution(&[5_300, 4_700], &[0.5, 0.5]);
}
