//! How much memory there is, and sizes and times as people write them.

use std::fs;

/// A size in bytes from `"512MB"`, `"1.5 GiB"`, `"4096"`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" => 1e3,
        "m" | "mb" => 1e6,
        "g" | "gb" => 1e9,
        "t" | "tb" => 1e12,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * unit;
    (bytes >= 1.0 && bytes < (1_u64 << 60) as f64).then_some(bytes as u64)
}

/// A size as a person reads it.
pub fn size_text(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        1_000_000_000..1_000_000_000_000 => format!("{:.2} GB", bytes as f64 / 1e9),
        _ => format!("{:.1} TB", bytes as f64 / 1e12),
    }
}

/// Seconds as a person reads them.
pub(crate) fn secs_text(secs: f64) -> String {
    if secs < 10.0 { format!("{secs:.1}") } else { format!("{secs:.0}") }
}

/// What bounds the memory that a ring may take; `None` where there is no such bound, or nobody tells.
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
    /// What is left of it, if the kernel drops what files it has cached.
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
    /// it but kills somebody.
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
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut tightest: Option<GroupLimit> = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, limit, usage) = if controllers.is_empty() {
            ("/sys/fs/cgroup", "memory.max", "memory.current")
        } else if controllers.split(',').any(|name| name == "memory") {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        } else {
            continue;
        };
        let mut path = path.trim_end_matches('/').to_owned();
        loop {
            let read = |file| fs::read_to_string(format!("{root}{path}/{file}")).ok()?.trim().parse::<u64>().ok();
            if let (Some(limit), Some(usage)) = (read(limit), read(usage)) {
                // What files were read fills the group's limit, and is given back when somebody wants it.
                let cache = fs::read_to_string(format!("{root}{path}/memory.stat")).map_or(0, |stat| page_cache(&stat));
                let left_bytes = limit.saturating_sub(usage.saturating_sub(cache));
                if tightest.is_none_or(|other| left_bytes < other.left_bytes) {
                    tightest = Some(GroupLimit { limit_bytes: limit, left_bytes });
                }
            }
            match path.rfind('/') {
                Some(index) => path.truncate(index),
                None => break,
            }
        }
    }
    tightest
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
    let statm = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split_whitespace().next()?.parse().ok()?;
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
        for bad in ["", "abc", "-1", "0", "12 parsecs", "1e9", "."] {
            assert_eq!(parse_size(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn this_machine_has_some_memory() {
        assert!(available_bytes() > 1 << 20);
    }
}
