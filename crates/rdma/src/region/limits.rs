//! The memory limits that the system imposes on a process.

use std::{fs, path::Path};

/// Returns the capacity that a region can have in this process: `most` bytes, or less. The bounds
/// are half of the address space that the process is limited to, and the memory limits of its
/// control groups.
///
/// # Example
///
/// ```
/// let capacity = drtm_rdma::capacity_within_limits(64 << 30);
/// assert!((1..=64 << 30).contains(&capacity));
/// ```
#[must_use]
pub fn capacity_within_limits(most: u64) -> u64 {
    let own = |file: &str| fs::read_to_string(Path::new("/proc/self").join(file)).unwrap_or_default();
    let addresses = address_space(&own("limits")).map(|addresses| addresses / 2);
    let groups = least_limit(&own("cgroup"), Path::new("/sys/fs/cgroup"));
    [addresses, groups].into_iter().flatten().fold(most, u64::min)
}

/// Returns the address space that these limits of a process allow now. `None` if they allow any.
fn address_space(limits: &str) -> Option<u64> {
    let limit = limits.lines().find_map(|line| line.strip_prefix("Max address space"))?;
    limit.split_whitespace().next()?.parse().ok()
}

/// Returns the least memory limit of these groups and their parents, up to their mount's root,
/// which in a container is the container's own.
fn least_limit(groups: &str, mount: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (mount.to_owned(), "memory.max"),
            "memory" => (mount.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        let group = root.join(path.trim_start_matches('/'));
        // A group that is not visible here, or has no limit, imposes none.
        let limit = |group: &Path| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        group.ancestors().take_while(|group| group.starts_with(&root)).filter_map(limit).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_now_counts() {
        let of = |soft: &str| {
            address_space(&format!(
                "Limit                     Soft Limit           Hard Limit           Units     \n\
                 Max address space         {soft:<20} 9000                 bytes     \n"
            ))
        };
        assert_eq!((of("8192"), of("unlimited")), (Some(8_192), None));
        assert_eq!(address_space(""), None, "where the system does not tell");
    }

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let mount = std::env::temp_dir().join(format!("drtm-limits-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = mount.join(path);
            fs::create_dir_all(path.parent().expect("a directory")).expect("room");
            fs::write(path, text).expect("room");
        };
        let new = "4:pids:/x\n0::/a/b\n";
        assert_eq!(least_limit(new, &mount), None);
        write("a/b/memory.max", "max\n");
        assert_eq!(least_limit(new, &mount), None);
        write("a/memory.max", "5000\n");
        assert_eq!(least_limit(new, &mount), Some(5_000));
        write("a/b/memory.max", "4000\n");
        assert_eq!(least_limit(new, &mount), Some(4_000));
        let old = "4:memory:/c/d\n0::/\nnonsense\n";
        assert_eq!(least_limit(old, &mount), None);
        write("memory/memory.limit_in_bytes", "3000\n");
        assert_eq!(least_limit(old, &mount), Some(3_000), "in a container");
        write("memory/c/d/memory.limit_in_bytes", "2000\n");
        assert_eq!(least_limit(old, &mount), Some(2_000));
        fs::remove_dir_all(&mount).expect("it is ours");
    }
}
