//! `feedline run`: jobs that start together and end together.
//!
//! ```text
//! start the feed, if asked to ──serves──▶ start all jobs ──all end──▶ end the feed ──▶ the worst exit code
//!                                            │ one fails, Ctrl-C, SIGTERM     ▲
//!                                            ├──▶ signal all ──after a grace time──▶ kill
//!                                            │ the feed fails                 │
//!                                            └──▶ the jobs get its error ──after a grace time──▶ signal all
//! ```
//!
//! The feed gets its signal last: jobs that are about to end may still read, and jobs whose feed has failed read everything
//! that was loaded.
//!
//! The main thread waits for signals only, SIGCHLD among them. Other threads write: `pump` forwards the
//! jobs' output, `log_writer` writes the run's own messages.

mod lines;
mod log_writer;
mod member;
mod pump;
mod signals;
mod template;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::process::Command;
use std::time::{Duration, Instant};

use feedline_core::control_client::ControlClient;
use feedline_core::names;
use feedline_core::options::Name;
use rustix::io::Errno;
use rustix::process::Signal;

use self::log_writer::LogWriter;
use self::member::{Log, Member, Status};
use self::signals::Signals;
pub(crate) use self::signals::stop_ignoring_children;
use self::template::{Values, fill, needs_name};
use crate::Invocation;
use crate::args::Run;
use crate::ls::duration_text;
use crate::output::{Failed, Misused, table};

/// A signal that doesn't arrive, or a job whose end was missed, is noticed after this time.
const POLL: Duration = Duration::from_millis(500);
/// Processes that take longer than this to end are named.
const PROMPT: Duration = Duration::from_secs(1);
/// How often to check whether the feed serves.
const RETRY: Duration = Duration::from_millis(50);
/// What to do when there are too many open files.
const TOO_MANY_FILES_HINT: &str = "each job needs several open files: allow more (ulimit -n 4096), or start fewer jobs";

pub(crate) fn run(options: &Run, invocation: &Invocation) -> anyhow::Result<u8> {
    check(options)?;
    let mut group = JobGroup {
        signals: Signals::listen()?,
        log: LogWriter::start()?,
        members: Vec::new(),
        grace: Duration::from_secs_f64(options.grace_secs),
        keep_going: options.keep_going,
        ending: None,
        feed_lost: None,
        interrupts: 0,
        feed: options.name.clone().filter(|_| options.serve.is_some() && !options.keep_going),
        is_blocked: false,
        is_cancelled: false,
    };
    let started = group.start_all(options, invocation);
    if let Err(error) = started {
        group.end_with(Signal::TERM, true);
        group.wait();
        group.finish_log();
        return Err(error);
    }
    group.wait();
    group.report_ends();
    group.finish_log();
    Ok(group.code())
}

/// Checks what clap's definitions can't express.
fn check(options: &Run) -> anyhow::Result<()> {
    if let Some(name) = &options.name {
        names::socket_path(name).map_err(|error| Misused(error.to_string()))?;
    } else if options.command.iter().any(|word| needs_name(word)) {
        return Err(Misused("the command has {name} in it, and no feed is named\n  add --name NAME".into()).into());
    }
    if let Some(folder) = &options.output {
        std::fs::create_dir_all(folder).map_err(|error| {
            Failed(format!("cannot make the folder {}: {error}\n  name another one with --output", folder.display()))
        })?;
    }
    Ok(())
}

/// All processes of a run.
struct JobGroup {
    signals: Signals,
    log: LogWriter,
    members: Vec<Member>,
    grace: Duration,
    keep_going: bool,
    ending: Option<Ending>,
    /// Set when the feed has failed: the time at which jobs that still run are asked to end.
    feed_lost: Option<Instant>,
    interrupts: u32,
    /// The feed that is served for the jobs, if they begin and end together.
    feed: Option<String>,
    /// The feed waits for a job that has ended already.
    is_blocked: bool,
    /// The user wants us to end.
    is_cancelled: bool,
}

/// The jobs were asked to end, and after them the feed.
#[derive(Clone, Copy)]
struct Ending {
    kill_at: Option<Instant>,
    includes_feed: bool,
    /// When to name the processes that we wait for.
    say_at: Option<Instant>,
    /// We ended them, and no user did: their exit codes don't count.
    is_ours: bool,
}

impl JobGroup {
    fn start_all(&mut self, options: &Run, invocation: &Invocation) -> anyhow::Result<()> {
        if let Some(loader) = &options.serve {
            let name = options.name.as_deref().unwrap_or_default();
            self.start_feed(options, invocation, loader, name)?;
            if self.ending.is_some() {
                return Ok(());
            }
        }
        for i in 0..options.jobs {
            let values = Values { i, n: options.jobs, name: options.name.as_deref() };
            let mut words = options.command.iter().map(|word| fill(word, &values));
            let program = words.next().unwrap_or_default();
            let mut command = Command::new(&program);
            command.args(words);
            command.env("FEEDLINE_JOB", i.to_string()).env("FEEDLINE_JOBS", options.jobs.to_string());
            if let Some(name) = &options.name {
                command.env("FEEDLINE_NAME", name);
            }
            if std::env::var_os("PYTHONUNBUFFERED").is_none() {
                command.env("PYTHONUNBUFFERED", "1");
            }
            let log = log_file(options, &format!("job-{i}.log"))?;
            let member = Member::start(command, i.to_string(), i as usize, false, log);
            self.members.push(member.map_err(|error| cannot_start(&program, &error))?);
        }
        Ok(())
    }

    /// Starts the feed, and waits until jobs can attach to it.
    fn start_feed(&mut self, options: &Run, invocation: &Invocation, loader: &str, name: &str) -> anyhow::Result<()> {
        let mut words = invocation.command.iter();
        let program = words.next().cloned().unwrap_or_default();
        let mut command = Command::new(&program);
        command.args(words).args(["serve", loader, "--name", name]);
        command.args(options.args.iter().map(|value| format!("--arg={value}")));
        if !options.keep_going {
            // Otherwise a job that fails early would keep the others waiting.
            command.args([Name::wait_for.flag(), options.jobs.to_string()]);
        }
        let log = log_file(options, "feed.log")?;
        let feed = Member::start(command, "feed".into(), options.jobs as usize, true, log);
        let feed = feed.map_err(|error| cannot_start(&program, &error))?;
        let (path, pid) = (names::socket_path(name)?, feed.pid());
        self.members.push(feed);
        while self.ending.is_none() && names::server_of(&path) != Some(pid) {
            self.step(RETRY);
            if let Some(end) = self.members[0].end {
                // The feed's process has already printed what is wrong.
                let how = describe(end.status);
                self.log.say(format!(
                    "the feed ended ({how}) before a job was started\n  try it alone: feedline serve {loader} --name {name}"
                ));
                self.ending.get_or_insert(Ending { kill_at: None, includes_feed: true, say_at: None, is_ours: false });
            }
        }
        Ok(())
    }

    /// Waits until all processes have ended.
    fn wait(&mut self) {
        while self.members.iter().any(|member| member.end.is_none()) {
            self.step(POLL);
            // A feed that has failed ends by itself.
            let is_due = self.feed_lost.is_none_or(|at| at <= Instant::now());
            if is_due && !self.has_jobs() && !self.ending.is_some_and(|ending| ending.includes_feed) {
                self.end_with(Signal::TERM, true);
            }
        }
        self.wait_until(|group| group.members.iter().all(Member::has_written_all));
        for member in &mut self.members {
            member.reap();
        }
    }

    /// Waits until all messages are written.
    fn finish_log(&mut self) {
        self.log.close();
        self.wait_until(|group| group.log.is_done());
    }

    /// Waits until the last output is written. If nobody reads it, until a signal; if the user asked us to end before, for a
    /// moment only.
    fn wait_until(&mut self, is_written: impl Fn(&Self) -> bool) {
        let mut leave_at = self.is_cancelled.then(|| Instant::now() + PROMPT);
        while !is_written(self) && leave_at.is_none_or(|at| Instant::now() < at) {
            let signals = self.signals.wait(RETRY);
            if signals.iter().any(|&signal| matches!(signal, Signal::INT | Signal::TERM)) {
                self.interrupts += 1;
                self.is_cancelled = true;
                leave_at = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Waits for an event for at most `longest`, and handles it.
    fn step(&mut self, longest: Duration) {
        let next = self.ending.map_or(self.feed_lost, |ending| ending.kill_at);
        let left = next.map(|at| at.duration_since(Instant::now()));
        for signal in self.signals.wait(left.map_or(longest, |left| left.min(longest))) {
            self.handle_signal(signal);
        }
        self.reap();
        if self.ending.is_none() && self.feed_lost.is_some_and(|at| at <= Instant::now()) {
            self.end_with(Signal::TERM, true);
        }
        self.enforce_grace_time();
    }

    /// Names the processes that have not ended a moment after they were asked to, and kills them after the grace time.
    fn enforce_grace_time(&mut self) {
        let Some(Ending { kill_at: Some(kill_at), say_at, .. }) = self.ending else { return };
        let now = Instant::now();
        let is_late = kill_at <= now;
        if self.ending_members().next().is_none() || !(is_late || say_at.is_some_and(|at| at <= now)) {
            return;
        }
        let names = self.ending_members().map(Member::name).collect::<Vec<_>>().join(", ");
        if is_late {
            self.ending_members().for_each(|member| member.signal(Signal::KILL));
            self.log.say(format!("{names} did not end in {} s: killed", self.grace.as_secs_f64()));
        } else {
            let left = kill_at.duration_since(now).as_secs_f64().ceil();
            let again = if self.interrupts > 0 { "; Ctrl-C again kills at once" } else { "" };
            self.log.say(format!("waiting up to {left} s for {names} to end{again}"));
        }
        let kill_at = (!is_late).then_some(kill_at);
        self.ending = self.ending.map(|ending| Ending { kill_at, say_at: None, ..ending });
    }

    fn handle_signal(&mut self, signal: Signal) {
        match signal {
            Signal::CHILD => {}
            Signal::INT if self.interrupts > 0 => self.alive().for_each(|member| member.signal(Signal::KILL)),
            Signal::INT | Signal::TERM | Signal::HUP => {
                self.is_cancelled = true;
                self.interrupts += u32::from(signal == Signal::INT);
                self.end_with(signal, false);
            }
            Signal::TSTP => {
                self.alive().for_each(|member| member.signal(Signal::STOP));
                let _ = signal_hook::low_level::emulate_default_handler(signal.as_raw());
                self.alive().for_each(|member| member.signal(Signal::CONT));
            }
            other => self.alive().for_each(|member| member.signal(other)),
        }
    }

    fn alive(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.end.is_none())
    }

    fn has_jobs(&self) -> bool {
        self.alive().any(|member| !member.is_feed)
    }

    /// The processes whose turn it is to end: the jobs, then the feed.
    fn ending_members(&self) -> impl Iterator<Item = &Member> {
        let has_jobs = self.has_jobs();
        self.alive().filter(move |member| member.is_feed != has_jobs)
    }

    /// Asks the processes to end, with a signal; those that still run after the grace time are killed.
    fn end_with(&mut self, signal: Signal, is_ours: bool) {
        self.ending_members().for_each(|member| member.signal(signal));
        // A process that is stopped would not handle the signal.
        self.ending_members().for_each(|member| member.signal(Signal::CONT));
        let now = Instant::now();
        let includes_feed = !self.has_jobs();
        let is_ours = self.ending.map_or(is_ours, |ending| ending.is_ours);
        let is_first = self.ending.is_none_or(|ending| ending.includes_feed != includes_feed);
        let kill_at = if is_first { Some(now + self.grace) } else { self.ending.and_then(|ending| ending.kill_at) };
        self.ending = Some(Ending { kill_at, includes_feed, say_at: Some(now + PROMPT), is_ours });
    }

    /// Checks which processes have ended, and ends the others if one has failed.
    fn reap(&mut self) {
        let ended_by_us = self.ending.is_some_and(|ending| ending.is_ours);
        let (mut failed, mut done) = (None, None);
        for member in &mut self.members {
            match member.poll_end(ended_by_us).map(|end| end.status) {
                Some(Status::Code(0)) if !member.is_feed => done = Some(member.name()),
                Some(status) if status != Status::Code(0) => {
                    failed = failed.or_else(|| Some((member.name(), status, member.log.clone(), member.is_feed)));
                }
                _ => {}
            }
        }
        let others = self.has_jobs();
        if let Some(name) = done
            && self.ending.is_none()
            && others
            && self.feed.as_deref().is_some_and(still_waits_for_consumers)
        {
            self.is_blocked = true;
            self.end_with(Signal::TERM, true);
            self.log.say(format!(
                "{name} ended before the feed had all its jobs: the others would wait for it\n  ending them; --keep-going lets \
                 jobs begin without each other"
            ));
        }
        if let Some((name, status, log, is_feed)) = failed
            && self.ending.is_none()
            && others
            && !self.keep_going
        {
            let log = log.map_or_else(String::new, |log| format!("\n  see {}", log.display()));
            let say = |what: String| format!("{name} failed ({}): {what}{log}", describe(status));
            // A job may learn that the feed has failed, and fail because of it, before the feed's process ends.
            if is_feed || self.feed_lost.is_some() || self.feed.as_deref().is_some_and(has_failed) {
                self.feed_lost.get_or_insert(Instant::now() + self.grace);
                if is_feed {
                    self.log
                        .say(say(format!("its jobs get the error, and have {} s to end", self.grace.as_secs_f64())));
                }
            } else {
                self.end_with(Signal::TERM, true);
                self.log.say(say("ending the others".into()));
            }
        }
    }

    /// Prints how all of them ended.
    fn report_ends(&self) {
        let mut rows = vec![["JOB", "EXIT", "TIME", ""].map(str::to_owned).to_vec()];
        for member in &self.members {
            let Some(end) = member.end else { continue };
            let note = match &member.log {
                _ if end.status == Status::Code(0) => String::new(),
                _ if end.ended_by_us => "ended by us".into(),
                Some(log) => format!("see {}", log.display()),
                None => String::new(),
            };
            let time = duration_text(end.after.as_secs_f64());
            rows.push(vec![member.label.clone(), end.status.text(), time, note]);
        }
        self.log.say(table(&rows).trim_end().to_owned());
    }

    /// The worst exit code.
    fn code(&self) -> u8 {
        if self.interrupts > 0 {
            return 130;
        }
        let ends = self.members.iter().filter_map(|member| member.end);
        let worst = ends.filter(|end| !end.ended_by_us).map(|end| end.status.code()).max().unwrap_or(0);
        worst.max(u8::from(self.is_blocked))
    }
}

/// Whether a feed still waits for consumers before it hands out anything.
fn still_waits_for_consumers(name: &str) -> bool {
    let stats = ControlClient::connect(name).and_then(|mut client| client.stats(POLL));
    stats.is_ok_and(|stats| !stats.gate_open)
}

/// Whether a feed has failed, or is gone.
fn has_failed(name: &str) -> bool {
    let stats = ControlClient::connect(name).and_then(|mut client| client.stats(POLL));
    stats.is_ok_and(|stats| stats.state == "failed")
        || names::socket_path(name).is_ok_and(|path| names::server_of(&path).is_none())
}

fn describe(status: Status) -> String {
    match status {
        Status::Code(_) | Status::Unknown => format!("exit code {}", status.text()),
        Status::Signal(_) => status.text(),
    }
}

/// The file that a process's output goes to, if it goes to a file.
fn log_file(options: &Run, name: &str) -> anyhow::Result<Option<Log>> {
    let Some(path) = options.output.as_ref().map(|folder| folder.join(name)) else { return Ok(None) };
    // Opened for appending, so that both streams, and children, write one after the other.
    let opened = File::create(&path).and_then(|_| OpenOptions::new().append(true).open(&path));
    let file = opened.map_err(|error| {
        let way_out = if is_too_many(&error) { TOO_MANY_FILES_HINT } else { "name another folder with --output" };
        Failed(format!("cannot write to {}: {error}\n  {way_out}", path.display()))
    })?;
    Ok(Some(Log { path, file }))
}

fn is_too_many(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

fn cannot_start(program: &OsString, error: &std::io::Error) -> anyhow::Error {
    let shown = program.to_string_lossy();
    let way_out = if is_too_many(error) {
        TOO_MANY_FILES_HINT.into()
    } else if shown.ends_with(".py") {
        format!("start it with Python: -- python {shown}")
    } else if error.kind() == std::io::ErrorKind::NotFound {
        "check its spelling, and PATH".into()
    } else {
        "try it alone, without `feedline run`".into()
    };
    Failed(format!("cannot start {shown}: {error}\n  {way_out}")).into()
}
