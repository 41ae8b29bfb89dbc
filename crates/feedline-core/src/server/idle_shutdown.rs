//! Whether consumers are attached to a server's feeds, and when it may end because none are.
//!
//! The feeds of one process share this: they end together, and never while a consumer of one of them is attached. The
//! decision and attaching happen under one lock, so a consumer is either in time for all feeds or learns that they have ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_shm::{Mutex, MutexGuard};

/// Shared by the feeds of one process.
#[derive(Clone, Debug)]
pub struct IdleShutdown(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    attached: usize,
    /// When the feeds began to wait for their first consumer, or the last one left.
    since: Instant,
    had_consumers: bool,
    has_ended: bool,
}

impl Default for IdleShutdown {
    fn default() -> Self {
        let state = State { attached: 0, since: Instant::now(), had_consumers: false, has_ended: false };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl IdleShutdown {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// A consumer has come. `None` if the feeds have ended.
    pub(super) fn attach(&self) -> Option<ConsumerPresence> {
        let mut state = self.lock();
        if state.has_ended {
            return None;
        }
        state.attached += 1;
        state.had_consumers = true;
        Some(ConsumerPresence(self.clone()))
    }

    /// Ends the feeds if nobody has been attached for long enough: `first` until the first consumer, `linger` after the last one.
    /// Returns how long nobody was attached; once it has, every feed gets that answer.
    pub(super) fn end_if_idle(
        &self,
        first: Option<Duration>,
        linger: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        let mut state = self.lock();
        let limit = if state.had_consumers { linger } else { first }?;
        let is_over = state.attached == 0 && now.saturating_duration_since(state.since) >= limit;
        state.has_ended |= is_over;
        state.has_ended.then_some(limit)
    }
}

/// One consumer's presence; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct ConsumerPresence(IdleShutdown);

impl Drop for ConsumerPresence {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.attached -= 1;
        state.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Option<Duration> = Some(Duration::from_secs(5));
    const LINGER: Option<Duration> = Some(Duration::from_secs(10));

    fn after(secs: u64) -> Instant {
        Instant::now() + Duration::from_secs(secs)
    }

    #[test]
    fn nobody_comes() {
        let feeds = IdleShutdown::default();
        assert_eq!(feeds.end_if_idle(FIRST, LINGER, after(4)), None);
        assert_eq!(feeds.end_if_idle(None, LINGER, after(1000)), None);
        assert_eq!(feeds.end_if_idle(FIRST, LINGER, after(6)), FIRST);
        assert!(feeds.attach().is_none());
    }

    #[test]
    fn a_consumer_of_one_feed_keeps_the_others() {
        let train = IdleShutdown::default();
        let val = train.clone();
        let one = train.attach();
        let another = val.attach();
        drop(one);
        assert_eq!(train.end_if_idle(FIRST, LINGER, after(1000)), None);
        drop(another);
        assert_eq!(train.end_if_idle(FIRST, None, after(1000)), None);
        assert_eq!(train.end_if_idle(FIRST, LINGER, after(9)), None);
        assert_eq!(train.end_if_idle(FIRST, LINGER, after(11)), LINGER);
        // Decided for all feeds, whenever each of them asks.
        assert_eq!(val.end_if_idle(FIRST, LINGER, Instant::now()), LINGER);
        assert!(val.attach().is_none() && train.attach().is_none());
    }
}
