//! The `feedline` binary, without Python: commands that need Python are handed to `python -m feedline`.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use feedline_cli::{Invocation, Outcome};

/// Finds out whether the package is installed, without importing it.
const FIND_PACKAGE: &str = "import importlib.util, sys; sys.exit(importlib.util.find_spec('feedline') is None)";

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().map_or_else(|_| "feedline".into(), Into::into);
    let invocation = Invocation { command: vec![program], is_python: false };
    match feedline_cli::main(args.clone(), &invocation) {
        Outcome::Exit(code) => code.into(),
        Outcome::Python { command, .. } => {
            let why = exec_python(&args);
            eprintln!(
                "error: `feedline {command}` needs Python with the package feedline: {why}\n  \
                 set FEEDLINE_PYTHON to an interpreter that has it, or install it there: pip install . in a clone"
            );
            ExitCode::FAILURE
        }
    }
}

/// Replaces this process by `python -m feedline`. Returns only if that fails: why.
fn exec_python(args: &[OsString]) -> String {
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
    command.args(["-c", FIND_PACKAGE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status()?.success())
}
