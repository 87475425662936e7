//! How much memory there is.

/// Returns how many bytes of memory this process may use: those of its control group or of the machine, whichever is less.
/// `None` where that cannot be told.
pub(super) fn available_to_this_process() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| total_of(&text));
    let groups = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let group = groups.into_iter().filter_map(|path| read(path)?.trim().parse().ok()).min();
    machine.into_iter().chain(group).min()
}

/// Reads the line `MemTotal:       24655000 kB`.
fn total_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_bytes() {
        assert_eq!(total_of("MemTotal:       24655000 kB\nMemFree: 1 kB\n"), Some(24_655_000 * 1024));
        assert_eq!(total_of("nothing of the kind"), None);
    }
}
