//! How much memory there is, and sizes and times as people write them.

use std::fs;

use bytesize::ByteSize;

use crate::proc::group_folders;

/// A size in bytes from `"512MB"`, `"1.5 GiB"`, `"4096"`.
pub(crate) fn parse_size(text: &str) -> Option<u64> {
    text.trim().parse().ok().map(|ByteSize(bytes)| bytes).filter(|bytes| (1..1 << 60).contains(bytes))
}

/// A size as a person reads it, in thousands: `412.0 MB`, `1.50 GB`.
pub fn size_text(bytes: u64) -> String {
    // Tenths of a gigabyte would be too coarse to compare what is needed with what is left.
    let decimals = if bytes < 1_000_000_000 { 1 } else { 2 };
    format!("{:.decimals$}", ByteSize(bytes).display().si())
}

/// Seconds as a person reads them.
pub(crate) fn secs_text(secs: f64) -> String {
    if secs < 10.0 { format!("{secs:.1}") } else { format!("{secs:.0}") }
}

/// What bounds the memory that a ring may take; `None` where there is no such bound, or it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryLimits {
    /// What the machine has left.
    pub machine_bytes: Option<u64>,
    /// The control group with the least left.
    pub group: Option<GroupLimit>,
    /// What is left of the address space, halved: a mirrored ring takes twice its size of it.
    pub address_space_bytes: Option<u64>,
}

/// A control group that has a memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimit {
    /// Its limit.
    pub limit_bytes: u64,
    /// What is left of it, if the kernel drops the files that it has cached.
    pub left_bytes: u64,
}

impl MemoryLimits {
    /// Asks the kernel.
    pub fn read() -> Self {
        Self {
            machine_bytes: meminfo_available(),
            group: tightest_group(),
            address_space_bytes: address_space_available(),
        }
    }

    /// Memory that a ring may still take: the smallest of them, less an eighth, because the kernel doesn't refuse the last of
    /// it but kills a process.
    pub fn available_bytes(&self) -> u64 {
        let group = self.group.map(|group| group.left_bytes);
        let bounds = [self.machine_bytes, group, self.address_space_bytes];
        bounds.into_iter().flatten().min().unwrap_or(u64::MAX) / 8 * 7
    }
}

/// See [`MemoryLimits::available_bytes`].
pub(crate) fn available_bytes() -> u64 {
    MemoryLimits::read().available_bytes()
}

/// What is left on the disk of a folder.
pub(crate) fn disk_available(folder: &std::path::Path) -> u64 {
    rustix::fs::statvfs(folder).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn meminfo_available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemAvailable:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The tightest limit on the way from our group to the root, both versions of the interface.
fn tightest_group() -> Option<GroupLimit> {
    let group = |folder: String| -> Option<GroupLimit> {
        let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok();
        let number = |file| read(file)?.trim().parse::<u64>().ok();
        let limit_bytes = number("memory.max").or_else(|| number("memory.limit_in_bytes"))?;
        let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
        // Files that were read count towards the group's limit, and are dropped when the memory is needed.
        let cache = read("memory.stat").map_or(0, |stat| page_cache(&stat));
        Some(GroupLimit { limit_bytes, left_bytes: limit_bytes.saturating_sub(used.saturating_sub(cache)) })
    };
    let groups = group_folders(std::process::id(), "memory").into_iter().filter_map(group);
    groups.min_by_key(|group| group.left_bytes)
}

/// `active_file` and `inactive_file` of a `memory.stat`; the older interface has them with `total_` for the whole tree.
fn page_cache(stat: &str) -> u64 {
    let entries = || stat.lines().filter_map(|line| line.split_once(' '));
    let sum = |names: [&str; 2]| -> u64 {
        entries().filter(|(name, _)| names.contains(name)).filter_map(|(_, bytes)| bytes.parse::<u64>().ok()).sum()
    };
    match sum(["total_active_file", "total_inactive_file"]) {
        0 => sum(["active_file", "inactive_file"]),
        total => total,
    }
}

/// `RLIMIT_AS`, less what is mapped; a mirrored ring takes twice its size of it.
fn address_space_available() -> Option<u64> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::As).current?;
    let pages = procfs::process::Process::myself().ok()?.statm().ok()?.size;
    Some(limit.saturating_sub(pages * feedline_shm::page_size()) / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_size("512MB"), Some(512_000_000));
        assert_eq!(parse_size("1.5 GiB"), Some(1_610_612_736));
        assert_eq!(parse_size(" 4096 "), Some(4096));
        assert_eq!(["2g", "2 gb", "2GB"].map(parse_size), [Some(2_000_000_000); 3]);
        for bad in ["", "abc", "-1", "0", "12 parsecs", "1e9", ".", "2000000TB"] {
            assert_eq!(parse_size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn sizes_are_written_as_people_read_them() {
        let texts = [0, 999, 1_500, 412_000_000, 1_490_000_000, 2_000_000_000_000].map(size_text);
        assert_eq!(texts, ["0 B", "999 B", "1.5 kB", "412.0 MB", "1.49 GB", "2.00 TB"]);
    }

    #[test]
    fn this_machine_has_some_memory() {
        assert!(available_bytes() > 1 << 20);
    }
}
