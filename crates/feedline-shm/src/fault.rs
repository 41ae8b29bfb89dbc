//! Points in a batch's life at which a test lets this process die or stand still.
//!
//! Without the feature `faults`, which no wheel has, a point is nothing. With it, `FEEDLINE_FAULT="point:count:action"` says
//! what happens when the point is passed for the count-th time (from 1): `kill` and `stop` (SIGKILL, SIGSTOP, by the thread that passes),
//! `exit`, or `sleep=MILLIS`. The points are named where they are passed; `tests/chaos` has the list.

/// Passes a point.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn point(_name: &str) {}

#[cfg(feature = "faults")]
pub use self::armed::point;

#[cfg(feature = "faults")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    struct Fault {
        point: String,
        left: AtomicU64,
        action: Action,
    }

    #[derive(Clone, Copy)]
    enum Action {
        Raise(i32),
        Exit,
        Sleep(Duration),
    }

    /// Passes a point: what `FEEDLINE_FAULT` asked for happens here.
    pub fn point(name: &str) {
        static FAULT: OnceLock<Option<Fault>> = OnceLock::new();
        let fault = FAULT.get_or_init(|| std::env::var("FEEDLINE_FAULT").ok().map(|text| parse(&text)));
        let Some(fault) = fault.as_ref().filter(|fault| fault.point == name) else { return };
        // Below zero it wraps, and never comes to one again.
        if fault.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            fault.action.act();
        }
    }

    fn parse(text: &str) -> Fault {
        let parts: Vec<&str> = text.rsplitn(3, ':').collect();
        let &[action, count, point] = &parts[..] else { panic!("FEEDLINE_FAULT={text:?} is not point:count:action") };
        let action = match action.split_once('=') {
            None if action == "kill" => Action::Raise(libc::SIGKILL),
            None if action == "stop" => Action::Raise(libc::SIGSTOP),
            None if action == "exit" => Action::Exit,
            Some(("sleep", millis)) => Action::Sleep(Duration::from_millis(millis.parse().expect("a time in ms"))),
            _ => panic!("FEEDLINE_FAULT={text:?}: not kill, stop, exit or sleep=MILLIS"),
        };
        Fault { point: point.to_owned(), left: AtomicU64::new(count.parse().expect("a count")), action }
    }

    impl Action {
        fn act(self) {
            match self {
                // SAFETY: `raise` has no preconditions. It is this thread's signal, so nothing after the point runs before it.
                Self::Raise(signal) => drop(unsafe { libc::raise(signal) }),
                // SAFETY: `_exit` has no preconditions; unlike `exit` it runs nobody's handlers.
                Self::Exit => unsafe { libc::_exit(0) },
                Self::Sleep(time) => std::thread::sleep(time),
            }
        }
    }
}
