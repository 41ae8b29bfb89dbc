//! `feedline dashboard`: one page that shows all feeds of this user, live.
//!
//! ```text
//! a thread: Watcher::poll() ──▶ Timeline, 15 minutes of each feed ──▶ an update, to every open page
//!                                 └──▶ a snapshot, to a page that opens or comes back
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `listen` | the address, and the port if another one is taken |
//! | `access` | which requests are answered: hosts, the token, the cookie |
//! | `pages` | what each request is answered with |
//! | `timeline`, `card` | what is remembered of all feeds, and of one that may end and come back |
//! | `assets/` | the page: no build step, and nothing from elsewhere |

mod access;
mod card;
mod listen;
mod pages;
mod timeline;

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use feedline_core::names;
use feedline_shm::{Mutex, MutexGuard};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, oneshot};

use self::access::AccessControl;
use self::timeline::Timeline;
use crate::args::Dashboard;
use crate::output::{print, say};
use crate::watch::Watcher;

/// Updates that are kept for a page that reads slowly. A page that is further behind gets a snapshot.
const WAITING: usize = 16;

/// What the polling thread and the pages share.
struct Live {
    timeline: Mutex<Timeline>,
    updates: broadcast::Sender<Arc<str>>,
}

impl Live {
    fn timeline(&self) -> MutexGuard<'_, Timeline> {
        self.timeline.lock()
    }
}

pub(crate) fn run(options: &Dashboard) -> anyhow::Result<u8> {
    let token = access::choose_token(options.token.as_deref())?;
    let listener = listen::listen(&options.host, options.port)?;
    let address = listener.local_addr()?;
    if options.port != 0 && address.port() != options.port {
        say(&format!("port {} is taken: listening on {}", options.port, address.port()));
    }
    let access = AccessControl::new(address, token)?;
    let interval = Duration::from_secs_f64(options.interval_secs);
    let live = Arc::new(Live {
        timeline: Mutex::new(Timeline::new(interval, &names::folder())),
        updates: broadcast::channel(WAITING).0,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the dashboard's server")?;
    runtime.block_on(serve(listener, access, live, interval))
}

/// Answers requests until a signal comes. Returns the exit code.
async fn serve(
    listener: TcpListener,
    access: AccessControl,
    live: Arc<Live>,
    interval: Duration,
) -> anyhow::Result<u8> {
    // Before the URL is printed: a program that reads it may send a signal at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    print(&format!("{}\n", access.url()))?;
    say(&access.hint());
    let (_running, stop) = channel();
    let (ended, mut poller) = oneshot::channel::<()>();
    let shared = Arc::clone(&live);
    thread::Builder::new().name("feedline-poller".into()).spawn(move || {
        poll(&shared, interval, &stop);
        drop(ended);
    })?;
    let server = axum::serve(listener, pages::router(access, live));
    tokio::select! {
        outcome = server.into_future() => outcome.context("the dashboard's server has ended").map(|()| 1),
        _ = &mut poller => anyhow::bail!("the thread that polls the feeds has ended\n  this is a bug in feedline"),
        _ = interrupt.recv() => {
            say("interrupted: the dashboard has ended; the feeds go on");
            Ok(130)
        }
        _ = terminate.recv() => {
            say("the dashboard was asked to end, and has ended; the feeds go on");
            Ok(0)
        }
    }
}

/// Polls all feeds again and again, until the other end of `stop` is gone.
fn poll(live: &Live, interval: Duration, stop: &Receiver<()>) {
    let mut watcher = Watcher::new(Vec::new());
    loop {
        let found = watcher.poll();
        {
            let mut timeline = live.timeline();
            let update = timeline.record(found, watcher.ended());
            // Under the lock, so that no page misses what came between its snapshot and its first update.
            let _ = live.updates.send(update.into());
        }
        if stop.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
