//! `feedline stop`.

use std::time::Duration;

use feedline_core::names;
use feedline_core::visitor::Visitor;

use crate::args::Stop;
use crate::output::{Failed, say};

pub(crate) fn run(options: &Stop) -> anyhow::Result<()> {
    let names =
        if options.all { names::feeds().into_iter().map(|feed| feed.name).collect() } else { options.names.clone() };
    if names.is_empty() {
        say("no feeds run for this user");
    }
    let timeout = Duration::from_secs_f64(options.timeout_secs);
    for name in names {
        let visitor = Visitor::connect(&name)?;
        let pid = visitor.server_pid();
        if !visitor.stop(timeout)? {
            return Err(Failed(format!(
                "feed {name:?} (pid {pid}) has not ended in {} s: its process is stopped, or very busy\n  \
                 end it by force: kill -9 {pid}",
                options.timeout_secs
            ))
            .into());
        }
        say(&format!("stopped {name} (pid {pid})"));
    }
    Ok(())
}
