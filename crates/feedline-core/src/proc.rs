//! What the kernel tells about a process or a thread: its state, where it sleeps, what it has computed, what it was started as.

use std::fs::{self, File};
use std::io::Read;

use procfs::process::{Process, Task};

/// The longest part of a command line that is read.
const LONGEST_COMMAND: u64 = 4096;

pub use feedline_shm::child::die_with_parent;

/// A process of this machine: `pt_data_worker, sleeping (futex_wait), 0.4 s of CPU`. `None` if it is gone, or not ours to see.
pub(crate) fn process_text(pid: u32) -> Option<String> {
    text(&Stat::of(pid)?, &format!("/proc/{pid}"))
}

/// The same for a thread of this process.
pub(crate) fn thread_text(tid: i32) -> Option<String> {
    let stat = Process::myself().ok()?.task_from_tid(tid).ok()?.stat().ok()?;
    text(&stat.into(), &format!("/proc/self/task/{tid}"))
}

/// Whether a process is stopped, by a signal or in a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    Stat::of(pid).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// What a process is doing: "it is stopped (state T)".
pub(crate) fn state_text(pid: u32) -> Option<String> {
    Stat::of(pid).map(|stat| format!("it is {} (state {})", state_words(stat.state), stat.state))
}

/// A process's children, whichever thread started them.
pub fn children(pid: u32) -> Vec<u32> {
    let mut children: Vec<u32> = tasks(pid).flat_map(|task| task.children().unwrap_or_default()).collect();
    children.sort_unstable();
    children
}

/// The threads of a process.
fn tasks(pid: u32) -> impl Iterator<Item = Task> {
    process(pid).and_then(|process| process.tasks().ok()).into_iter().flatten().flatten()
}

/// Its folder in `/proc`; `None` if it is gone.
pub(crate) fn process(pid: u32) -> Option<Process> {
    if pid == std::process::id() { Process::myself() } else { Process::new(pid.try_into().ok()?) }.ok()
}

/// The folders of the control groups that limit a process's use of a resource ("cpu", "memory"), from its own up to the root, in
/// both versions of the interface.
pub fn group_folders(pid: u32, controller: &str) -> Vec<String> {
    let groups = process(pid).and_then(|process| process.cgroups().ok());
    let mut folders = Vec::new();
    for group in groups.into_iter().flatten() {
        let root = match group.controllers.as_slice() {
            [] => "/sys/fs/cgroup".to_owned(),
            names if names.iter().any(|name| name == controller) => format!("/sys/fs/cgroup/{controller}"),
            _ => continue,
        };
        let own = group.pathname.trim_end_matches('/');
        let ends = own.rmatch_indices('/').map(|(index, _)| index);
        folders.extend([own.len()].into_iter().chain(ends).map(|end| format!("{root}{}", &own[..end])));
    }
    folders
}

fn text(stat: &Stat, folder: &str) -> Option<String> {
    let Stat { name, state, cpu_secs } = stat;
    let wchan = fs::read_to_string(format!("{folder}/wchan")).unwrap_or_default();
    // "0" means that it doesn't sleep, or that we may not know.
    let place = if matches!(wchan.as_str(), "" | "0") { String::new() } else { format!(" ({wchan})") };
    Some(format!("{name}, {}{place}, {cpu_secs:.1} s of CPU", state_words(*state)))
}

fn state_words(state: char) -> &'static str {
    match state {
        'R' => "running",
        'S' => "sleeping",
        'D' => "waiting for a disk or a driver",
        'T' => "stopped",
        't' => "stopped by a debugger",
        'Z' => "dead",
        _ => "in an unusual state",
    }
}

/// Foreign text, made safe for a terminal: nothing in it moves the cursor or reverses the line.
pub(crate) fn sanitized(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_bidi_mark(c) { ' ' } else { c }).collect()
}

/// Marks that change the direction of writing, and similar ones.
fn is_bidi_mark(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

/// The command line of a process, its arguments separated by blanks; of a very long one, the beginning.
pub fn command(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/cmdline")).ok()?.take(LONGEST_COMMAND).read_to_end(&mut bytes).ok()?;
    let arguments = bytes.split(|&byte| byte == 0).filter(|argument| !argument.is_empty());
    Some(sanitized(&arguments.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")))
}

/// How much of a process's memory is in RAM, and how much of that is in no file, ring or other shared memory.
pub fn memory_bytes(pid: u32) -> Option<(u64, u64)> {
    let pages = process(pid)?.statm().ok()?;
    let page = procfs::page_size();
    Some((pages.resident * page, pages.resident.saturating_sub(pages.shared) * page))
}

/// How many bytes were read from disks for a process, including its memory that is backed by files. Zero where the kernel doesn't
/// tell.
pub fn disk_read_bytes(pid: u32) -> u64 {
    process(pid).and_then(|process| process.io().ok()).map_or(0, |io| io.read_bytes)
}

/// How long the living threads of a process were ready to run and had no core. Zero where the kernel
/// doesn't count it.
pub fn core_wait_secs(pid: u32) -> f64 {
    let nanos: u64 = tasks(pid).filter_map(|task| task.schedstat().ok()).map(|stat| stat.run_delay).sum();
    nanos as f64 / 1e9
}

/// A part of `/proc/PID/stat`.
#[derive(Clone, Debug)]
pub struct Stat {
    /// The program's name, cut to 15 bytes by the kernel.
    pub name: String,
    /// 'R', 'S', 'D', 'T', ...
    pub state: char,
    /// CPU time.
    pub cpu_secs: f64,
}

impl Stat {
    /// Of a process; `None` if it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        Some(process(pid)?.stat().ok()?.into())
    }
}

impl From<procfs::process::Stat> for Stat {
    fn from(stat: procfs::process::Stat) -> Self {
        let cpu_secs = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
        Self { name: stat.comm, state: stat.state, cpu_secs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs() {
        let pid = std::process::id();
        assert!(process_text(pid).unwrap().contains("s of CPU"));
        assert!(!is_stopped(pid));
        assert!(state_text(pid).unwrap().starts_with("it is "));
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(thread_text(tid).unwrap().contains("running"));
        let (resident, private) = memory_bytes(pid).unwrap();
        assert!(0 < private && private < resident, "{private} of {resident}");
    }
}
