//! What can be typed: every command, its options, and its help. What `serve` takes is in `server_options`.

mod server_options;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use serde::Serialize;

pub use self::server_options::ServerOptions;

/// One loader, many jobs: share a data loader between all training jobs on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "feedline",
    version,
    arg_required_else_help = true,
    subcommand_required = true,
    disable_help_subcommand = true,
    after_help = "Examples:
  feedline demo                                              what sharing brings, on this machine
  feedline serve data.py:make_loader --name images           one loader ...
  feedline run -n 4 -- python train.py --seed {i}            ... for four jobs
  feedline top                                               who waits for whom

`feedline COMMAND --help` has more. Feeds are found by name in $FEEDLINE_DIR, else in $XDG_RUNTIME_DIR/feedline, else in /tmp/feedline-UID."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Four training jobs with a loader each, then on one feed: both, and the ratio
    Demo(Demo),
    /// Serve a loader from a file or a module until Ctrl-C
    Serve(Box<Serve>),
    /// Start N jobs together, and end them together
    Run(Run),
    /// List the feeds of this user
    Ls(Ls),
    /// Show live who is attached, who waits for whom, and what to change
    Top(Top),
    /// End feeds; each consumer gets an error that says so
    Stop(Stop),
    /// Name the samples of a step, past or to come, of a feed that has a plan
    Which(Which),
    /// Check what this machine offers, with a real round trip
    Doctor(Doctor),
    /// Measure what sharing would bring to your own loader
    Bench(Bench),
    /// Show all feeds in a browser
    Dashboard(Dashboard),
    /// Export numbers to Prometheus, or to a file
    Metrics(Metrics),
    /// Print a completion script for a shell
    Completions(Completions),
}

/// `feedline demo`.
#[derive(Debug, Args, Serialize)]
#[command(after_help = "Examples:
  feedline demo --jobs 3 --seconds 5
  feedline demo --json")]
pub struct Demo {
    /// Training jobs at once
    #[arg(long, default_value_t = 4, value_parser = count::<{ u32::MAX }>, allow_negative_numbers = true)]
    pub jobs: u32,
    /// Measured time of each half
    #[arg(long, default_value_t = 15.0, value_parser = positive, allow_negative_numbers = true)]
    pub seconds: f64,
    /// JPEGs to make
    #[arg(long, default_value_t = 1024, value_parser = count::<{ u32::MAX }>, allow_negative_numbers = true)]
    pub images: u32,
    /// CPU cores to run it all on
    #[arg(long, default_value_t = 2, value_parser = count::<{ u32::MAX }>, allow_negative_numbers = true)]
    pub cores: u32,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// What makes a loader.
#[derive(Debug, Args, Serialize)]
pub struct Maker {
    /// FILE.py:FUNCTION or package.module:FUNCTION; the function is called once and returns the loader
    #[arg(value_name = "FILE.py:make_loader")]
    pub loader: String,
    /// An argument for the function; a Python literal, or else a string. May be given again
    #[arg(long = "arg", value_name = "KEY=VALUE")]
    pub args: Vec<String>,
}

/// `feedline serve`.
#[derive(Debug, Args, Serialize)]
#[command(after_help = "Examples:
  feedline serve data.py:make_loader --name images
  feedline serve data.py:make_loader --name images --arg split=train --arg workers=8 --epochs 90
  feedline serve my.package.data:make_loader --name val --replay
  feedline serve data.py:make_loader --name images --history 2GB --lag history --wait-for 4

Jobs read it with feedline.attach(\"images\", batch_size=96).")]
pub struct Serve {
    /// What makes the loader.
    #[command(flatten)]
    pub maker: Maker,
    /// The feed's name, by which jobs find it
    #[arg(long)]
    pub name: String,
    /// How to serve it.
    #[command(flatten)]
    #[serde(skip)]
    pub options: ServerOptions,
}

/// `feedline run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline run -n 4 -- python train.py --seed {i}
  feedline run -n 4 --output logs -- python train.py --seed {i}
  feedline run -n 4 --serve data.py:make_loader --name images -- python train.py --feed {name} --seed {i}

{i} becomes 0, 1, 2, ... and {name} the feed's name; an n in braces becomes the number of jobs. Jobs see the same as FEEDLINE_JOB, FEEDLINE_NAME and FEEDLINE_JOBS.
Other braces stay as they are; {{i}} becomes a literal {i}.
When one job fails, the others are ended; the exit code is the worst one. Signals are handed on to all jobs, and what a job leaves running ends with it.
A feed that is served beside them ends after them. When its loader fails, each job reads what was loaded, gets the loader's error, and has --grace-secs to end.")]
pub struct Run {
    /// How many jobs
    #[arg(short = 'n', long = "jobs", value_name = "N", value_parser = count::<4096>, allow_negative_numbers = true)]
    pub jobs: u32,
    /// The feed's name, for {name} and FEEDLINE_NAME
    #[arg(long)]
    pub name: Option<String>,
    /// Serve this loader beside the jobs, under --name, until they are done. Its first sample is handed out when all jobs have
    /// asked; with --keep-going, when one has
    #[arg(long, value_name = "FILE.py:make_loader", requires = "name")]
    pub serve: Option<String>,
    /// An argument for the function that makes it, as for `feedline serve`. May be given again
    #[arg(long = "arg", value_name = "KEY=VALUE", requires = "serve")]
    pub args: Vec<String>,
    /// Write each job's output to DIR/job-0.log, ... instead of prefixing it
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Let the others go on when a job fails
    #[arg(long)]
    pub keep_going: bool,
    /// How long jobs have to end after a signal, before they are killed
    #[arg(long, value_name = "SECS", default_value_t = 10.0, value_parser = not_negative, allow_negative_numbers = true)]
    pub grace_secs: f64,
    /// The job's command line
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// `feedline ls`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline ls
  feedline ls --json")]
pub struct Ls {
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `feedline top`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline top                     live; q quits
  feedline top --once              the numbers once, as text
  feedline top images --json       the numbers of one feed once, as JSON")]
pub struct Top {
    /// Only these feeds
    pub names: Vec<String>,
    /// Print the numbers once
    #[arg(long)]
    pub once: bool,
    /// Print the numbers once, as JSON
    #[arg(long)]
    pub json: bool,
    /// Time between two updates
    #[arg(long, value_name = "SECS", default_value_t = 1.0, value_parser = interval, allow_negative_numbers = true)]
    pub interval_secs: f64,
}

/// `feedline stop`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline stop images
  feedline stop --all")]
pub struct Stop {
    /// The feeds to end
    #[arg(value_name = "NAME", conflicts_with = "all")]
    pub names: Vec<String>,
    /// All feeds of this user
    #[arg(long)]
    pub all: bool,
    /// How long to wait for each
    #[arg(long, value_name = "SECS", default_value_t = 10.0, value_parser = positive, allow_negative_numbers = true)]
    pub timeout_secs: f64,
}

/// `feedline doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline doctor
  feedline doctor --json
  feedline doctor --timeout-secs 120     where importing torch takes long

Exits with 1 if anything is bad. Feedline works on this machine in spite of lines that are marked as notes.")]
pub struct Doctor {
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// How long everything may take; what hangs is reported
    #[arg(long, value_name = "SECS", default_value_t = 30.0, value_parser = positive, allow_negative_numbers = true)]
    pub timeout_secs: f64,
    /// Be the second process of the round trip: read this feed
    #[arg(long, hide = true, value_name = "NAME")]
    pub probe: Option<String>,
}

/// `feedline bench`.
#[derive(Debug, Args, Serialize)]
#[command(after_help = "Examples:
  feedline bench data.py:make_loader --jobs 4
  feedline bench data.py:make_loader --jobs 8 --seconds 30 --price-per-hour 3.06 --json")]
pub struct Bench {
    /// What makes the loader.
    #[command(flatten)]
    pub maker: Maker,
    /// How many training jobs would share it
    #[arg(long, default_value_t = 4, value_parser = count::<256>, allow_negative_numbers = true)]
    pub jobs: u32,
    /// Each job's batch size; the loader's own if not given
    #[arg(long, value_name = "N", value_parser = large_count, allow_negative_numbers = true)]
    pub batch_size: Option<u64>,
    /// Measured time of each of the three parts
    #[arg(long, default_value_t = 10.0, value_parser = positive, allow_negative_numbers = true)]
    pub seconds: f64,
    /// What this machine costs, to state the saving in money
    #[arg(long, value_name = "PRICE", value_parser = not_negative, allow_negative_numbers = true)]
    pub price_per_hour: Option<f64>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `feedline dashboard`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline dashboard
  feedline dashboard --host 0.0.0.0 --port 8080     in a container; the printed URL has a token in it
  FEEDLINE_TOKEN=$(openssl rand -hex 16) feedline dashboard     where others log in too: loopback is theirs as well")]
pub struct Dashboard {
    /// The address to listen on; a token is needed for all but loopback
    #[arg(long, default_value = "127.0.0.1")]
    pub host: String,
    /// The port; the next free one if it is taken, any free one if it is 0
    #[arg(long, default_value_t = 8787, value_parser = port, allow_negative_numbers = true)]
    pub port: u16,
    /// The token that a browser must show; drawn at random where one is needed and none is given
    #[arg(long, env = "FEEDLINE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Time between two updates
    #[arg(long, value_name = "SECS", default_value_t = 1.0, value_parser = interval, allow_negative_numbers = true)]
    pub interval_secs: f64,
}

/// `feedline which`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline which imagenet --epoch 3 --step 812
  feedline which imagenet --epoch 3 --step 812 --batch-size 64 --json")]
pub struct Which {
    /// The feed
    pub name: String,
    /// The epoch, counted from 0
    #[arg(long, allow_negative_numbers = true)]
    pub epoch: u64,
    /// The step of the epoch, counted from 0
    #[arg(long, allow_negative_numbers = true)]
    pub step: u64,
    /// The job's batch size, of all ranks together; without it, the one that all attached jobs have
    #[arg(long, value_name = "SAMPLES", value_parser = count::<{ u32::MAX }>, allow_negative_numbers = true)]
    pub batch_size: Option<u32>,
    /// Print one line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `feedline metrics`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline metrics                                   print once, as Prometheus text
  feedline metrics --port 9464                       answer Prometheus on http://127.0.0.1:9464/metrics
  feedline metrics --file feeds.jsonl                append a line of JSON per feed every 5 s, until Ctrl-C")]
pub struct Metrics {
    /// Print once, which is also what happens without --port and --file
    #[arg(long, conflicts_with_all = ["port", "file"])]
    pub once: bool,
    /// Answer on this port of 127.0.0.1, until Ctrl-C; 0 picks a free one
    #[arg(long, value_name = "PORT", value_parser = port, allow_negative_numbers = true)]
    pub port: Option<u16>,
    /// Append lines of JSON to this file, until Ctrl-C
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Time between two lines
    #[arg(long, value_name = "SECS", default_value_t = 5.0, value_parser = interval, allow_negative_numbers = true)]
    pub interval_secs: f64,
}

/// `feedline completions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  feedline completions bash >~/.local/share/bash-completion/completions/feedline
  feedline completions zsh >~/.zfunc/_feedline
  feedline completions fish >~/.config/fish/completions/feedline.fish")]
pub struct Completions {
    /// Which shell
    pub shell: clap_complete::Shell,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number < 1e9 => Ok(number),
        _ => Err("give a number greater than 0".into()),
    }
}

/// Every poll costs some time: there is a shortest interval.
fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.1..1e9).contains(&number) => Ok(number),
        _ => Err("give a number of seconds, 0.1 or more".into()),
    }
}

fn not_negative(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..1e9).contains(&number) => Ok(number),
        _ => Err("give a number, 0 or more".into()),
    }
}

fn count<const MOST: u32>(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if (1..=MOST).contains(&number) => Ok(number),
        _ if MOST == u32::MAX => Err("give a whole number, 1 or more".into()),
        _ => Err(format!("give a whole number from 1 to {MOST}")),
    }
}

fn large_count(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("give a whole number, 1 or more".into()),
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "give a number from 0 to 65535; 0 takes any port that is free".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("feedline {}", command.get_name())), "{}", command.get_name());
        }
    }
}
