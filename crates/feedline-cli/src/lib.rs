//! The command line and what it draws.
//!
//! | module | what it owns |
//! |---|---|
//! | [`args`] | every command, its options, its help |
//! | [`watch`] | polling feeds again and again: `observation` is one poll of a feed, `view` what several add up to, `machine` what the cores do |
//! | [`verdict`] | what the numbers mean, and what to change |
//! | `ls`, `stop`, ... | a command each |
//!
//! One program with two entry points: the plain binary, and the Python package's `feedline` command, which calls [`main`] from
//! the
//! extension. Commands that need Python (`serve`, `demo`, `bench`) are parsed here and run there.

pub mod args;
mod dashboard;
mod doctor;
mod format;
mod ls;
mod machine;
mod metrics;
mod observation;
mod output;
mod pool;
mod run;
mod stop;
mod top;
pub mod verdict;
mod view;
pub mod watch;
mod which;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};

use self::args::{Cli, Command, ServerOptions};

/// How this program was started.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The command that starts it again: `feedline`, or `python -m feedline`.
    pub command: Vec<OsString>,
    /// Whether Python called us.
    pub is_python: bool,
}

/// What is left to do for the caller.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing but to exit, with this code.
    Exit(u8),
    /// A command that needs Python.
    Python {
        /// "serve", "demo" or "bench".
        command: &'static str,
        /// What was typed, as JSON.
        options: serde_json::Value,
        /// What was typed for the server; JSON can't hold all of it.
        server_options: ServerOptions,
    },
}

/// Runs a command line, which is given without the program's own name.
pub fn main(args: impl IntoIterator<Item = OsString>, invocation: &Invocation) -> Outcome {
    let args: Vec<OsString> = std::iter::once(OsString::from("feedline")).chain(args).collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            output::misused(&error, &args[1..]);
            return Outcome::Exit(2);
        }
        Err(help) => {
            // The user asked for the help, so it is data.
            let _ = help.print();
            return Outcome::Exit(0);
        }
    };
    match act(cli.command, invocation) {
        Ok(outcome) => outcome,
        Err(error) => Outcome::Exit(output::report(&error)),
    }
}

fn act(command: Command, invocation: &Invocation) -> anyhow::Result<Outcome> {
    run::stop_ignoring_children()?;
    if let Command::Ls(_)
    | Command::Top(_)
    | Command::Stop(_)
    | Command::Dashboard(_)
    | Command::Metrics(_)
    | Command::Which(_) = command
    {
        feedline_core::names::check_readable()?;
    }
    let python = |command, options, server_options| Ok(Outcome::Python { command, options, server_options });
    match command {
        Command::Demo(options) => return python("demo", serde_json::to_value(options)?, ServerOptions::default()),
        Command::Serve(options) => return python("serve", serde_json::to_value(&options)?, options.options),
        Command::Bench(options) => return python("bench", serde_json::to_value(options)?, ServerOptions::default()),
        Command::Ls(options) => ls::run(&options)?,
        Command::Stop(options) => stop::run(&options)?,
        Command::Which(options) => which::run(&options)?,
        Command::Completions(options) => {
            let mut script = Vec::new();
            clap_complete::generate(options.shell, &mut Cli::command(), "feedline", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
        }
        Command::Top(options) => return top::run(&options).map(Outcome::Exit),
        Command::Run(options) => return run::run(&options, invocation).map(Outcome::Exit),
        Command::Doctor(options) => return doctor::run(&options, invocation).map(Outcome::Exit),
        Command::Dashboard(options) => return dashboard::run(&options).map(Outcome::Exit),
        Command::Metrics(options) => return metrics::run(&options).map(Outcome::Exit),
    }
    Ok(Outcome::Exit(0))
}
