//! What the kernel tells of a process or a thread: its state, where it sleeps, what it has computed, what it was started as.

use std::fs::{self, File};
use std::io::Read;

/// As much of a command line as anybody reads.
const LONGEST_COMMAND: u64 = 4096;

pub use feedline_shm::child::die_with_parent;

/// A process of this machine: `pt_data_worker, sleeping (futex_wait), 0.4 s of CPU`. `None` if it is gone, or not ours to see.
pub(crate) fn process_text(pid: u32) -> Option<String> {
    text(&format!("/proc/{pid}"))
}

/// The same of a thread of this process.
pub(crate) fn thread_text(tid: i32) -> Option<String> {
    text(&format!("/proc/self/task/{tid}"))
}

/// Whether a process is stopped, by a signal or in a debugger.
pub(crate) fn is_stopped(pid: u32) -> bool {
    Stat::read(&format!("/proc/{pid}")).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// What a process is doing: "it is stopped (state T)".
pub(crate) fn state_text(pid: u32) -> Option<String> {
    Stat::read(&format!("/proc/{pid}")).map(|stat| format!("it is {} (state {})", state_words(stat.state), stat.state))
}

/// A process's children, whichever thread started them.
pub fn children(pid: u32) -> Vec<u32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let mut children: Vec<u32> =
        lists.flat_map(|list| list.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect();
    children.sort_unstable();
    children
}

fn text(folder: &str) -> Option<String> {
    let Stat { name, state, cpu_secs, .. } = Stat::read(folder)?;
    let wchan = fs::read_to_string(format!("{folder}/wchan")).unwrap_or_default();
    // "0" says that it doesn't sleep, or that we may not know.
    let place = if matches!(wchan.as_str(), "" | "0") { String::new() } else { format!(" ({wchan})") };
    Some(format!("{name}, {}{place}, {cpu_secs:.1} s of CPU", state_words(state)))
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

/// What others wrote, for a terminal: nothing that moves its cursor, or turns the line around.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || turns(c) { ' ' } else { c }).collect()
}

/// Marks of direction, and their like.
fn turns(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

/// The command line of a process, its arguments parted by blanks; of a very long one, the beginning.
pub fn command(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(format!("/proc/{pid}/cmdline")).ok()?.take(LONGEST_COMMAND).read_to_end(&mut bytes).ok()?;
    let arguments = bytes.split(|&byte| byte == 0).filter(|argument| !argument.is_empty());
    Some(harmless(&arguments.map(String::from_utf8_lossy).collect::<Vec<_>>().join(" ")))
}

/// The memory of a process that is in RAM, and how much of it is in no file, ring or other shared memory.
pub fn memory_bytes(pid: u32) -> Option<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let mut pages = text.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
    let (resident, shared) = (pages.next()??, pages.next()??);
    let page = rustix::param::page_size() as u64;
    Some((resident * page, resident.saturating_sub(shared) * page))
}

/// What a process has had read from disks, for itself, in its memory that files back too. Zero where the kernel doesn't tell.
pub fn disk_read_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let bytes = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// How long the threads of a process that live now could have computed and had no core to do it on. Zero where the kernel
/// doesn't count it.
pub fn core_wait_secs(pid: u32) -> f64 {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0.0 };
    let texts = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    let nanos: u64 = texts.filter_map(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).sum();
    nanos as f64 / 1e9
}

/// What `/proc/PID/stat` tells.
#[derive(Clone, Debug)]
pub struct Stat {
    /// The program's name, cut to 15 bytes by the kernel.
    pub name: String,
    /// 'R', 'S', 'D', 'T', ...
    pub state: char,
    /// What it has computed.
    pub cpu_secs: f64,
}

impl Stat {
    /// Of a process; `None` if it is gone.
    pub fn of(pid: u32) -> Option<Self> {
        Self::read(&format!("/proc/{pid}"))
    }

    fn read(folder: &str) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("{folder}/stat")).ok()?)
    }

    /// `12 (a name) S 1 ...`; a name may hold blanks and brackets.
    fn parse(stat: &str) -> Option<Self> {
        let (front, rest) = stat.rsplit_once(')')?;
        let name = front.split_once('(')?.1.to_owned();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
        let cpu_secs = (ticks(11)? + ticks(12)?) as f64 / rustix::param::clock_ticks_per_second() as f64;
        Some(Self { name, state: fields.first()?.chars().next()?, cpu_secs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_look_like_the_rest() {
        let stat = Stat::parse("12 (a) S (b) T 1 2 3 4 5 6 7 8 9 10 200 100 0 0 20").unwrap();
        assert_eq!((stat.name.as_str(), stat.state), ("a) S (b", 'T'));
        assert!(stat.cpu_secs > 0.0);
        for bad in ["", "12", "12 (a", "12 (a)", "12 (a) S", ")(", "12 (a) S 1 2 3 4 5 6 7 8 9 10 x y"] {
            assert!(Stat::parse(bad).is_none(), "{bad:?}");
        }
    }

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
