//! `feedline`, without Python: what needs it is handed to `python -m feedline`.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use feedline_cli::{Host, Outcome};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().map_or_else(|_| "feedline".into(), Into::into);
    let host = Host { command: vec![program], is_python: false };
    match feedline_cli::main(args.clone(), &host) {
        Outcome::Exit(code) => code.into(),
        Outcome::Python { command, .. } => {
            let python = std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
            let error = Command::new(&python).args(["-m", "feedline"]).args(args).exec();
            eprintln!(
                "error: `feedline {command}` needs Python, and {} cannot be started: {error}\n  \
                 set FEEDLINE_PYTHON to the interpreter that has feedline installed",
                python.display()
            );
            ExitCode::FAILURE
        }
    }
}
