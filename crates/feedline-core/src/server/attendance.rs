//! Whether anybody is attached to a server's feeds, and when it may end because nobody is.
//!
//! The feeds of one process share an attendance: they end together, and never while a consumer of one of them is attached. Who
//! decides and who attaches meet under one lock, so a consumer is either in time for all feeds or told that they have ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shared by the feeds of one process.
#[derive(Clone, Debug)]
pub struct Attendance(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    attached: usize,
    /// When the feeds began to wait for their first consumer, or the last one left.
    since: Instant,
    had_consumers: bool,
    has_ended: bool,
}

impl Default for Attendance {
    fn default() -> Self {
        let state = State { attached: 0, since: Instant::now(), had_consumers: false, has_ended: false };
        Self(Arc::new(Mutex::new(state)))
    }
}

impl Attendance {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A consumer has come. `None` if the feeds have ended.
    pub(super) fn enter(&self) -> Option<Attending> {
        let mut state = self.lock();
        if state.has_ended {
            return None;
        }
        state.attached += 1;
        state.had_consumers = true;
        Some(Attending(self.clone()))
    }

    /// Ends the feeds if nobody has been attached for long enough: `first` until the first consumer, `linger` after the last one.
    /// Tells how long nobody was; once it has, it does so to every feed.
    pub(super) fn end_if_alone(
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
pub(super) struct Attending(Attendance);

impl Drop for Attending {
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
        let feeds = Attendance::default();
        assert_eq!(feeds.end_if_alone(FIRST, LINGER, after(4)), None);
        assert_eq!(feeds.end_if_alone(None, LINGER, after(1000)), None);
        assert_eq!(feeds.end_if_alone(FIRST, LINGER, after(6)), FIRST);
        assert!(feeds.enter().is_none());
    }

    #[test]
    fn a_consumer_of_one_feed_keeps_the_others() {
        let train = Attendance::default();
        let val = train.clone();
        let one = train.enter();
        let another = val.enter();
        drop(one);
        assert_eq!(train.end_if_alone(FIRST, LINGER, after(1000)), None);
        drop(another);
        assert_eq!(train.end_if_alone(FIRST, None, after(1000)), None);
        assert_eq!(train.end_if_alone(FIRST, LINGER, after(9)), None);
        assert_eq!(train.end_if_alone(FIRST, LINGER, after(11)), LINGER);
        // Decided for all of them, whenever each looks.
        assert_eq!(val.end_if_alone(FIRST, LINGER, Instant::now()), LINGER);
        assert!(val.enter().is_none() && train.enter().is_none());
    }
}
