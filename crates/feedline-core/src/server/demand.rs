//! For how long some job has waited for data: what a pool of workers in this process goes by.
//!
//! That the producer waits for its pool says less: it also does while the ring is filled ahead of jobs that are slow.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Machine, Shared};
use crate::stats::PoolReport;

/// Adds up the time in which one job or more wait.
#[derive(Debug, Default)]
struct Demand {
    waited_nanos: u64,
    /// What each consumer had waited when it was last looked at.
    seen: BTreeMap<u64, u64>,
}

impl Demand {
    /// Takes what each consumer has waited until now. Those that wait at the same time wait once, and what one had waited before
    /// it was seen does not count.
    fn look(&mut self, now: BTreeMap<u64, u64>) -> u64 {
        let since = |(id, nanos): (&u64, &u64)| nanos.saturating_sub(*self.seen.get(id).unwrap_or(nanos));
        self.waited_nanos += now.iter().map(since).max().unwrap_or(0);
        self.seen = now;
        self.waited_nanos
    }
}

/// Lets a pool ask for how long jobs have waited.
pub(super) fn tell(shared: &Arc<Shared>, pool: &PoolReport) {
    let (shared, mut demand): (Weak<Shared>, _) = (Arc::downgrade(shared), Demand::default());
    pool.set_jobs(Box::new(move || {
        // A forked child has the server's memory, and perhaps a lock that nobody will ever unlock.
        let shared = shared.upgrade().filter(|shared| shared.origin.is_here())?;
        let now = waited(&shared.lock().machine);
        Some(Duration::from_nanos(demand.look(now)))
    }));
}

/// What each consumer has waited that has a place in the feed: one that waits for its epoch is not helped by a faster source.
fn waited(machine: &Machine) -> BTreeMap<u64, u64> {
    let has_place = |id| machine.log().cursor(id).is_some_and(|(_, released)| released.is_some());
    let readers = machine.members().iter().filter(|&(id, _)| has_place(id));
    readers.map(|(id, member)| (id, member.page.handle.waited_nanos.load(Ordering::Relaxed))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_at_the_same_time_wait_once() {
        let mut demand = Demand::default();
        let mut look = |now: &[(u64, u64)]| demand.look(now.iter().copied().collect());
        assert_eq!(look(&[(1, 500)]), 0, "it waited before it was seen");
        assert_eq!(look(&[(1, 600), (2, 900)]), 100);
        assert_eq!(look(&[(1, 610), (2, 950)]), 150);
        assert_eq!(look(&[(2, 950)]), 150, "it has left");
        assert_eq!(look(&[(1, 700), (2, 950)]), 150, "it is another consumer");
        assert_eq!(look(&[]), 150);
    }
}
