//! A pool of workers in one line: how many there are, and why.

use feedline_core::stats::{PoolReason, PoolStats, ServerStats};

use crate::format::{count, some};

/// `3 workers of at most 32, auto: they keep up: they are waited for 1 % of the time; 128 samples ahead; 1 died and was replaced`.
pub(crate) fn text(stats: &ServerStats) -> Option<String> {
    let pool = stats.pool.as_ref()?;
    let mut parts = vec![size(pool)];
    // What a feed of whole batches counts are batches.
    if !stats.whole_batches {
        parts.push(format!("{} samples ahead", count(pool.ahead_samples as f64)));
    }
    let replaced = [(pool.died, "died"), (pool.late, "took too long")];
    let replaced: Vec<_> = replaced.iter().filter(|(number, _)| *number > 0).collect();
    if !replaced.is_empty() {
        let each: Vec<_> = replaced.iter().map(|(number, what)| format!("{number} {what}")).collect();
        parts.push(format!("replaced: {}", each.join(", ")));
    }
    Some(parts.join("; "))
}

fn size(pool: &PoolStats) -> String {
    let PoolStats { workers, wanted, stand_ins, most, why, .. } = *pool;
    let mut text = some(workers as usize, "worker");
    if stand_ins > 0 {
        text += &format!(", {stand_ins} of them because slow samples hold others up");
    }
    // They come within moments, and end after the samples that they are at.
    if workers != wanted + stand_ins {
        text += &format!(" ({} wanted)", wanted + stand_ins);
    }
    match why {
        PoolReason::Fixed => text + ", a fixed number",
        why => text + &format!(" of at most {most}, auto: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pool: PoolStats) -> String {
        text(&ServerStats { pool: Some(pool), ..ServerStats::default() }).unwrap()
    }

    #[test]
    fn the_size_and_the_reason_are_told() {
        let fixed = PoolStats { workers: 2, wanted: 2, most: 2, ahead_samples: 128, ..PoolStats::default() };
        assert_eq!(shown(fixed), "2 workers, a fixed number; 128 samples ahead");
        let auto = PoolStats { workers: 1, most: 32, why: PoolReason::UsesQuota { busy: 1.94, of: 2.0 }, ..fixed };
        let why = "of at most 32, auto: they keep 1.9 of 2.0 cores busy; 128 samples ahead";
        assert_eq!(shown(auto), format!("1 worker (2 wanted) {why}"));
        assert_eq!(text(&ServerStats::default()), None);
    }

    #[test]
    fn those_that_were_replaced_are_counted() {
        let pool = PoolStats { workers: 3, wanted: 2, stand_ins: 1, died: 1, late: 12, ..PoolStats::default() };
        let start = "3 workers, 1 of them because slow samples hold others up, a fixed number; 0 samples ahead";
        assert_eq!(shown(pool), format!("{start}; replaced: 1 died, 12 took too long"));
        assert_eq!(shown(PoolStats { late: 0, ..pool }), format!("{start}; replaced: 1 died"));
        let whole = ServerStats { whole_batches: true, pool: Some(pool), ..ServerStats::default() };
        assert!(!text(&whole).unwrap().contains("samples ahead"));
    }
}
