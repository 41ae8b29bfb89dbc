//! What Python reports: versions, GPUs, and round trips to NumPy and torch. It runs in a process of its own, which may crash or
//! hang.

use std::ffi::OsString;
use std::process::Command;
use std::time::Instant;

use feedline_core::wire;
use serde_json::{Value, json};

use super::child::{SecondProcess, Silence};
use super::report::Check;
use super::round_trip::{self, BATCH, Feed};
use crate::Invocation;

const SCRIPT: &str = include_str!("probe.py");
const WHERE: &str = "set FEEDLINE_PYTHON to the interpreter that has feedline installed";

/// A Python process that waits for questions.
pub(super) struct Interpreter {
    process: std::io::Result<SecondProcess>,
    program: OsString,
}

impl Interpreter {
    /// The interpreter that called us, or the one that `feedline serve` would take.
    pub(super) fn start(invocation: &Invocation) -> Self {
        let named = || std::env::var_os("FEEDLINE_PYTHON").unwrap_or_else(|| "python3".into());
        let own = invocation.command.first().filter(|_| invocation.is_python).cloned();
        let program = own.unwrap_or_else(named);
        let process = SecondProcess::start(Command::new(&program).args(["-c", SCRIPT, &BATCH.to_string()]));
        Self { process, program }
    }

    fn ask(&mut self, question: &str, deadline: Instant) -> Result<Value, String> {
        let process = self.process.as_mut().map_err(|error| format!("cannot be started: {error}"))?;
        process.send(question);
        let line = process.next_line(deadline).map_err(|silence| match silence {
            Silence::Late => "no answer in time".to_owned(),
            Silence::Ended(why) => why,
        })?;
        let answer: Value = serde_json::from_str(&line).map_err(|_| format!("it said {line:?}"))?;
        match answer["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(answer),
        }
    }
}

pub(super) fn checks(mut python: Interpreter, deadline: Instant, has_all: bool) -> Vec<Check> {
    let own = env!("CARGO_PKG_VERSION");
    let found = format!("feedline {own}, protocol {}", wire::VERSION);
    let mut checks = vec![Check::ok("version", found).with(json!({"feedline": own, "protocol": wire::VERSION}))];
    let program = python.program.to_string_lossy().into_owned();
    let about = match python.ask("python", deadline) {
        Ok(about) => about,
        Err(why) => {
            let advice = format!("`feedline serve`, `demo` and `bench` need it: {WHERE}");
            checks.push(Check::note("Python", format!("{program}: {why}"), advice));
            return checks;
        }
    };
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let found = format!("{} ({})", text(&about["python"]), text(&about["executable"]));
    let package = match python.ask("versions", deadline) {
        Ok(package) => package,
        Err(why) => {
            checks.push(Check::note("Python", format!("{found}: feedline cannot be imported: {why}"), WHERE));
            return checks;
        }
    };
    let version = text(&package["feedline"]);
    let numbers = json!({"python": about["python"], "executable": about["executable"], "feedline": version});
    let check = if version == own {
        Check::ok("Python", found)
    } else {
        Check::note("Python", format!("{found}, with feedline {version}"), "install the same version on both sides")
    };
    checks.push(check.with(numbers));
    checks.push(Check::ok("NumPy", text(&package["numpy"])).with(json!({"version": package["numpy"]})));
    checks.extend(has_all.then(|| round_trip(&mut python, "numpy", "trip to NumPy", deadline)));
    if about["torch"].is_null() {
        checks.push(Check::ok("torch", "not there: batches are NumPy arrays"));
        return checks;
    }
    match python.ask("torch", deadline) {
        Ok(found) => {
            checks.push(Check::ok("torch", text(&found["version"])).with(json!({"version": found["version"]})));
            checks.push(gpus(&found["gpus"]));
            checks.extend(has_all.then(|| round_trip(&mut python, "torch", "trip to torch", deadline)));
        }
        Err(why) => {
            let found = format!("{} is installed, and importing it failed: {why}", text(&about["torch"]));
            checks.push(Check::note("torch", found, format!("try it alone: {program} -c 'import torch'")));
        }
    }
    checks
}

fn gpus(found: &Value) -> Check {
    let names: Vec<&str> = found.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let check = if names.is_empty() {
        Check::ok("GPUs", "torch finds none; feeds are in host memory and need none")
    } else {
        Check::note(
            "GPUs",
            format!("{}: {}", names.len(), names.join(", ")),
            "device= and pin_memory= were never tried on hardware: compare a few batches with your loader's first",
        )
    };
    check.with(json!({"names": names}))
}

fn round_trip(python: &mut Interpreter, form: &'static str, name: &'static str, deadline: Instant) -> Check {
    let feed = match Feed::open(form) {
        Ok(feed) => feed,
        Err(error) => return round_trip::failed(name, &error.to_string()),
    };
    let seen = python.ask(&format!("read {form} {}", feed.name), deadline);
    match seen.and_then(|seen| serde_json::from_value(seen).map_err(|error| error.to_string())) {
        Ok(seen) => feed.judge(name, &seen, " in Python"),
        Err(why) => round_trip::failed(name, &why),
    }
}
