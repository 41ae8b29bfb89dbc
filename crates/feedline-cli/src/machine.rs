//! What the machine has to give: how many cores, how busy they are, how many a process may use.

use std::fs;

use serde::Serialize;

/// Over the last seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Machine {
    /// Cores of the machine.
    pub cores: u32,
    /// How busy all of them are, by whomever.
    pub busy_share: f64,
    /// How many of them the server and its workers may use: `taskset`, or a container's limit, may leave it fewer.
    pub allowed_cores: f64,
}

/// The clocks of all cores since the machine started, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ticks {
    busy: u64,
    all: u64,
    pub cores: u32,
}

impl Ticks {
    pub fn now() -> Self {
        fs::read_to_string("/proc/stat").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    /// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`, then a line for each core.
    fn parse(stat: &str) -> Self {
        let is_core = |line: &&str| line.starts_with("cpu") && !line.starts_with("cpu ");
        let cores = stat.lines().filter(is_core).count() as u32;
        let sum = stat.lines().find(|line| line.starts_with("cpu ")).unwrap_or_default();
        let ticks: Vec<u64> = sum.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
        let all: u64 = ticks.iter().sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy: all - idle, all, cores }
    }

    /// How busy they have been since.
    pub fn busy_since(&self, before: &Self) -> f64 {
        let all = self.all.saturating_sub(before.all);
        if all == 0 { 0.0 } else { (self.busy.saturating_sub(before.busy) as f64 / all as f64).min(1.0) }
    }
}

/// How many cores a process may use.
pub(crate) fn allowed_cores(pid: u32, cores: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let by_affinity = list.and_then(|list| listed(list.trim())).map_or(f64::from(cores), f64::from);
    by_affinity.min(f64::from(cores)).min(quota_cores(pid).unwrap_or(f64::INFINITY))
}

/// `0-3,8,10-11` are seven.
fn listed(list: &str) -> Option<u32> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
            (last >= first).then(|| last - first + 1)
        })
        .sum()
}

/// The tightest `cpu.max` on the way from its control group to the root.
fn quota_cores(pid: u32) -> Option<f64> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mut path = groups.lines().find_map(|line| line.strip_prefix("0::"))?.trim_end_matches('/').to_owned();
    let mut tightest = None;
    loop {
        let quota = fs::read_to_string(format!("/sys/fs/cgroup{path}/cpu.max")).ok();
        if let Some(cores) = quota.and_then(|quota| quota_of(&quota)) {
            tightest = Some(tightest.map_or(cores, |other: f64| other.min(cores)));
        }
        match path.rfind('/') {
            Some(index) => path.truncate(index),
            None => return tightest,
        }
    }
}

/// `150000 100000` is one and a half; `max 100000` is no limit.
fn quota_of(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        let before = Ticks::parse("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2\ncpu1 1 2\nintr 5\n");
        let now = Ticks::parse("cpu  160 0 60 820 60 0 0 0 99 0\ncpu0 1 2\ncpu1 1 2\n");
        assert_eq!(now.cores, 2);
        assert!((now.busy_since(&before) - 0.7).abs() < 1e-9);
        assert_eq!(Ticks::parse("").busy_since(&before), 0.0);
        assert_eq!(["0-3,8,10-11", "5", "", "3-1", "x"].map(listed), [Some(7), Some(1), None, None, None]);
        assert_eq!(["150000 100000\n", "max 100000\n", "", "5 0"].map(quota_of), [Some(1.5), None, None, None]);
    }

    #[test]
    fn this_process_may_use_some() {
        let cores = Ticks::now().cores;
        let allowed = allowed_cores(std::process::id(), cores);
        assert!(allowed > 0.0 && allowed <= f64::from(cores), "{allowed} of {cores}");
    }
}
