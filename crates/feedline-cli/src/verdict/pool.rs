//! What to change about a loader's pool that its jobs wait for: its number of workers, or what that is limited by.

use feedline_core::stats::{PoolReason, PoolStats};

/// How more workers are had: in the words of whoever gives their number.
pub(super) fn more(pool: Option<&PoolStats>) -> String {
    match pool {
        Some(PoolStats { why: PoolReason::Fixed, wanted, .. }) => {
            format!("more workers than num_workers={wanted}, or num_workers=\"auto\"")
        }
        _ => "more workers".into(),
    }
}

/// What there is to add where no core is left.
pub(super) fn without_cores(pool: Option<&PoolStats>) -> &'static str {
    match pool.map(|pool| pool.why) {
        Some(PoolReason::UsesQuota { .. }) => "; more workers would not help",
        _ => "",
    }
}

/// What there is to say about a pool that finds its number by itself, and jobs wait all the same. `waits`: its workers mostly wait
/// for something other than a core.
pub(super) fn found(pool: &PoolStats, waits: bool) -> Option<String> {
    let cheaper = if waits { "use faster storage" } else { "make the transforms cheaper" };
    let most = pool.most;
    Some(match pool.why {
        PoolReason::Fixed => return None,
        PoolReason::Starting | PoolReason::Trying { .. } => {
            "the pool is still finding its number of workers: wait for what it settles on".into()
        }
        PoolReason::KeepsUp { .. } => "the pool has kept up until now, and tries more workers if this lasts".into(),
        PoolReason::UsesQuota { of, .. } => format!(
            "the pool uses up the {of:.1} cores that it may use, and more workers would not help: give it more cores (taskset, or a \
             container's limit), or make the transforms cheaper"
        ),
        PoolReason::NoGain { tried, .. } => {
            format!("the pool has tried {tried}, which was not faster: more workers would not help; {cheaper}")
        }
        PoolReason::Most => format!(
            "the pool has no more than {most} workers by itself: give a larger number (num_workers=), or {cheaper}"
        ),
        PoolReason::Refused => {
            "the system starts no more processes for the pool: raise its limits on processes and memory".into()
        }
    })
}
