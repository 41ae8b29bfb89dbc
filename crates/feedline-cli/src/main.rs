//! `feedline`, without Python: what needs it is handed to `python -m feedline`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use feedline_cli::{Host, Outcome};

/// Whether the package is there, without importing it.
const LOOK: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('feedline') is None)";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().map_or_else(|_| "feedline".into(), Into::into);
    let host = Host { command: vec![program], is_python: false };
    match feedline_cli::main(args.clone(), &host) {
        Outcome::Exit(code) => code.into(),
        Outcome::Python { command, .. } => {
            let why = hand_over(&args);
            eprintln!(
                "error: `feedline {command}` needs Python with the package feedline: {why}\n  \
                 set FEEDLINE_PYTHON to an interpreter that has it, or install it there: pip install . in a clone"
            );
            ExitCode::FAILURE
        }
    }
}

/// Becomes `python -m feedline`; comes back only to say why that can't be.
fn hand_over(args: &[OsString]) -> String {
    let named = std::env::var_os("FEEDLINE_PYTHON").filter(|name| !name.is_empty());
    let candidates = named.map_or_else(|| vec!["python3".into(), "python".into()], |name| vec![name]);
    let mut reasons = Vec::new();
    for python in candidates {
        match has_package(&python) {
            Ok(true) => {
                let error = Command::new(&python).args(["-m", "feedline"]).args(args).exec();
                reasons.push(format!("{} cannot be started: {error}", python.display()));
            }
            Ok(false) => reasons.push(format!("{} does not have it", python.display())),
            Err(error) => reasons.push(format!("{} cannot be started: {error}", python.display())),
        }
    }
    reasons.join("; ")
}

fn has_package(python: &OsStr) -> std::io::Result<bool> {
    let mut command = Command::new(python);
    command.args(["-c", LOOK]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}
