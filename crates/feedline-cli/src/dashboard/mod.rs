//! `feedline dashboard`: one page that shows all feeds of this user, live.
//!
//! ```text
//! a thread: Watcher::look() ──▶ Past, 15 minutes of each feed ──▶ an update, to every open page
//!                                 └──▶ a snapshot, to a page that opens or comes back
//! ```
//!
//! | module | what it owns |
//! |---|---|
//! | `listen` | the address, and the port if another one is taken |
//! | `door` | who may look: hosts, the token, the cookie |
//! | `pages` | what is answered to whom |
//! | `past`, `card` | what is remembered of all feeds, and of one that may end and come back |
//! | `assets/` | the page: no build step, and nothing from elsewhere |

mod card;
mod door;
mod listen;
mod pages;
mod past;

use std::net::TcpListener;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use feedline_core::names;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{broadcast, oneshot};

use self::door::Door;
use self::past::Past;
use crate::args::Dashboard;
use crate::output::{print, say};
use crate::watch::Watcher;

/// Updates that wait for a page that reads slowly. One that is further behind gets a snapshot.
const WAITING: usize = 16;

/// What the thread that looks and the pages share.
struct Live {
    past: Mutex<Past>,
    updates: broadcast::Sender<Arc<str>>,
}

impl Live {
    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn run(options: &Dashboard) -> anyhow::Result<u8> {
    let token = door::choose_token(options.token.as_deref())?;
    let listener = listen::listen(&options.host, options.port)?;
    let address = listener.local_addr()?;
    if options.port != 0 && address.port() != options.port {
        say(&format!("port {} is taken: listening on {}", options.port, address.port()));
    }
    let door = Door::new(address, token)?;
    let interval = Duration::from_secs_f64(options.interval_secs);
    let live = Arc::new(Live {
        past: Mutex::new(Past::new(interval, &names::folder())),
        updates: broadcast::channel(WAITING).0,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start the dashboard's server")?;
    runtime.block_on(serve(listener, door, live, interval))
}

/// Answers until a signal comes: the exit code.
async fn serve(listener: TcpListener, door: Door, live: Arc<Live>, interval: Duration) -> anyhow::Result<u8> {
    // Before the URL is printed: whoever reads it may send a signal at once.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    print(&format!("{}\n", door.url()))?;
    say(&door.hint());
    let (_running, stop) = channel();
    let (ended, mut looker) = oneshot::channel::<()>();
    let shared = Arc::clone(&live);
    thread::Builder::new().name("feedline-looker".into()).spawn(move || {
        look(&shared, interval, &stop);
        drop(ended);
    })?;
    let server = axum::serve(listener, pages::router(door, live));
    tokio::select! {
        outcome = server.into_future() => outcome.context("the dashboard's server has ended").map(|()| 1),
        _ = &mut looker => anyhow::bail!("the thread that looks at feeds has ended\n  this is a bug in feedline"),
        _ = interrupt.recv() => {
            say("interrupted: the dashboard has ended; the feeds go on");
            Ok(130)
        }
        _ = terminate.recv() => {
            say("told to end: the dashboard has ended; the feeds go on");
            Ok(0)
        }
    }
}

/// Looks at all feeds again and again, until the other end of `stop` is gone.
fn look(live: &Live, interval: Duration, stop: &Receiver<()>) {
    let mut watcher = Watcher::new(Vec::new());
    loop {
        let found = watcher.look();
        {
            let mut past = live.past();
            let update = past.take(found, watcher.ended());
            // Under the lock, so that no page misses what came between its snapshot and its first update.
            let _ = live.updates.send(update.into());
        }
        if stop.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
