//! The machine's cores: how many there are, how busy they are, how many a process may use.

use std::collections::BTreeMap;
use std::fs;

use feedline_core::proc::group_folders;
use rustix::process::Pid;
use rustix::thread::sched_getaffinity;
use serde::Serialize;

/// Over the last seconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Machine {
    /// Cores of the machine.
    pub cores: u32,
    /// How busy all of them are, with any process.
    pub busy_share: f64,
    /// How many of them the server and its workers may use: `taskset`, or a container's limit, may leave it fewer.
    pub allowed_cores: f64,
    /// How many of those are idle.
    pub free_cores: f64,
    /// The share of its periods in which a container's CPU limit was used up.
    pub throttled_share: f64,
}

/// What a process may compute with, at one moment. All counters only grow.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cores {
    /// The clocks of each core of the machine.
    ticks: BTreeMap<u32, Ticks>,
    /// The cores that the process may run on; all of them, if that is not known.
    may_use: Vec<u32>,
    quota: Option<Quota>,
}

/// How long a core has existed since the machine started, in ticks, and for how much of that it was busy.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    busy: u64,
    all: u64,
}

/// The CPU limit of a control group: this many cores' time in each period.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quota {
    cores: f64,
    periods: u64,
    /// Periods in which it was used up.
    throttled: u64,
}

impl Machine {
    /// Between two observations, in which the feed's own processes kept `used_cores` busy.
    pub(crate) fn new(before: &Cores, now: &Cores, used_cores: f64) -> Self {
        let all: Vec<u32> = now.ticks.keys().copied().collect();
        let cores = all.len() as f64;
        let busy = |those: &[u32]| those.iter().map(|core| now.busy_since(before, *core)).sum::<f64>();
        let may_use = now.may_use.len() as f64;
        let (mut allowed_cores, mut free_cores, mut throttled_share) = (may_use, may_use - busy(&now.may_use), 0.0);
        if let Some(quota) = now.quota.filter(|quota| quota.cores < may_use) {
            allowed_cores = quota.cores;
            throttled_share = quota.throttled_since(before.quota);
            // What other processes of the group use is not known; when the limit was used up, they left nothing.
            let left = if throttled_share >= THROTTLED { 0.0 } else { quota.cores - used_cores };
            free_cores = free_cores.min(left);
        }
        let busy_share = if all.is_empty() { 0.0 } else { busy(&all) / cores };
        Self { cores: all.len() as u32, busy_share, allowed_cores, free_cores: free_cores.max(0.0), throttled_share }
    }

    /// Whether there is nothing left to compute with.
    pub(crate) fn is_busy(&self) -> bool {
        self.cores > 0 && self.free_cores <= (1.0 - BUSY) * self.allowed_cores
    }

    /// Whether its control group's limit is what it has used up.
    pub(crate) fn is_throttled(&self) -> bool {
        self.throttled_share >= THROTTLED
    }
}

/// Cores that are busier than this have nothing left.
const BUSY: f64 = 0.92;
/// A smaller share of throttled periods may be chance.
const THROTTLED: f64 = 0.2;

impl Cores {
    /// The cores, as this process may use them now.
    pub fn of(pid: u32) -> Self {
        let ticks = fs::read_to_string("/proc/stat").map(|text| parse_ticks(&text)).unwrap_or_default();
        let allowed = Pid::from_raw(pid.cast_signed()).and_then(|pid| sched_getaffinity(Some(pid)).ok());
        let is_allowed = |core: &u32| allowed.as_ref().is_none_or(|allowed| allowed.is_set(*core as usize));
        let may_use = ticks.keys().copied().filter(is_allowed).collect();
        Self { may_use, quota: Quota::of(pid), ticks }
    }

    fn busy_since(&self, before: &Self, core: u32) -> f64 {
        let (old, new) = (before.ticks.get(&core).copied().unwrap_or_default(), self.ticks[&core]);
        let all = new.all.saturating_sub(old.all);
        if all == 0 { 0.0 } else { (new.busy.saturating_sub(old.busy) as f64 / all as f64).min(1.0) }
    }
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`, a line for each core; the first line is their sum.
fn parse_ticks(stat: &str) -> BTreeMap<u32, Ticks> {
    let mut cores = BTreeMap::new();
    for line in stat.lines() {
        let mut fields = line.split_whitespace();
        let core = fields.next().and_then(|word| word.strip_prefix("cpu")).and_then(|number| number.parse().ok());
        let Some(core) = core else { continue };
        let ticks: Vec<u64> = fields.take(8).flat_map(str::parse).collect();
        let (all, idle): (u64, u64) = (ticks.iter().sum(), ticks.iter().skip(3).take(2).sum());
        cores.insert(core, Ticks { busy: all - idle, all });
    }
    cores
}

impl Quota {
    /// The tightest limit on the way from its control group to the root.
    fn of(pid: u32) -> Option<Self> {
        let quotas = group_folders(pid, "cpu").into_iter().filter_map(|folder| Self::in_folder(&folder));
        quotas.min_by(|left, right| left.cores.total_cmp(&right.cores))
    }

    fn in_folder(folder: &str) -> Option<Self> {
        let read = |file: &str| fs::read_to_string(format!("{folder}/{file}")).ok();
        let limit = read("cpu.max").or_else(|| {
            let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
            Some(format!("{} {}", quota.trim(), period.trim()))
        })?;
        let stat = read("cpu.stat").unwrap_or_default();
        let count = |name: &str| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
        };
        Some(Self { cores: quota_cores(&limit)?, periods: count("nr_periods "), throttled: count("nr_throttled ") })
    }

    fn throttled_since(&self, before: Option<Self>) -> f64 {
        let Some(before) = before else { return 0.0 };
        let periods = self.periods.saturating_sub(before.periods);
        let throttled = self.throttled.saturating_sub(before.throttled);
        if periods == 0 { 0.0 } else { (throttled as f64 / periods as f64).min(1.0) }
    }
}

/// `150000 100000` is one and a half; `max 100000` and `-1 100000` are no limit.
fn quota_cores(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then(|| quota / period)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(stat: &str, may_use: &[u32], quota: Option<Quota>) -> Cores {
        Cores { ticks: parse_ticks(stat), may_use: may_use.to_vec(), quota }
    }

    const BEFORE: &str = "cpu  9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 0 0\ncpu1 0 0 0 100\nintr 5\n";
    // Core 0 was busy for 70 ticks of 100, core 1 for all of them.
    const NOW: &str = "cpu  9 9 9 9\ncpu0 160 0 60 820 60 0 0 0 99 0\ncpu1 100 0 0 100\n";

    fn machine(may_use: &[u32], quotas: Option<(Quota, Quota)>, used: f64) -> Machine {
        let (before, now) = (quotas.map(|both| both.0), quotas.map(|both| both.1));
        Machine::new(&cores(BEFORE, may_use, before), &cores(NOW, may_use, now), used)
    }

    #[track_caller]
    fn is(got: f64, expected: f64) {
        assert!((got - expected).abs() < 1e-9, "{got} is not {expected}");
    }

    #[test]
    fn only_cores_that_it_may_use_are_free() {
        let all = machine(&[0, 1], None, 0.5);
        assert_eq!(all.cores, 2);
        is(all.busy_share, 0.85);
        is(all.free_cores, 0.3);
        assert!(!all.is_busy());
        let pinned = machine(&[1], None, 0.5);
        is(pinned.allowed_cores, 1.0);
        is(pinned.free_cores, 0.0);
        assert!(pinned.is_busy() && !pinned.is_throttled());
        assert!(!Machine::new(&Cores::default(), &Cores::default(), 0.0).is_busy());
    }

    #[test]
    fn a_limit_that_is_used_up_leaves_nothing() {
        let quota = |cores: f64, periods, throttled| Quota { cores, periods, throttled };
        let half = machine(&[0, 1], Some((quota(0.5, 100, 7), quota(0.5, 200, 87))), 0.1);
        is(half.throttled_share, 0.8);
        is(half.free_cores, 0.0);
        assert!(half.is_busy() && half.is_throttled());
        let quiet = machine(&[0, 1], Some((quota(0.5, 100, 7), quota(0.5, 200, 8))), 0.3);
        is(quiet.free_cores, 0.2);
        is(quiet.allowed_cores, 0.5);
        // A quota of more cores than the process may use limits nothing.
        is(machine(&[0, 1], Some((quota(9.0, 0, 0), quota(9.0, 9, 9))), 0.0).throttled_share, 0.0);
    }

    #[test]
    fn what_the_kernel_writes_is_read() {
        let quotas = ["150000 100000\n", "max 100000\n", "-1 100000", "", "5 0"];
        assert_eq!(quotas.map(quota_cores), [Some(1.5), None, None, None, None]);
    }

    #[test]
    fn this_process_may_use_some() {
        let cores = Cores::of(std::process::id());
        assert!(!cores.may_use.is_empty() && cores.may_use.len() <= cores.ticks.len(), "{cores:?}");
    }
}
