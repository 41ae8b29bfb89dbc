//! Fuzzing on any compiler: mutates the kept corpus with numbers from a printed seed, and counts the memory that each input
//! takes. Coverage is cargo-fuzz's to look for (`fuzz/README.md`); what it finds goes into the corpus, and is run here.
//!
//! `FUZZ_SECS` for each target (5), `FUZZ_TARGETS` a list of names (all), `FUZZ_SEED` to run a failure again.
//! `FUZZ_WRITE=1` writes the seeds into the corpus instead.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use feedline_core::fuzz::{TARGETS, Target, seeds};

/// More than this at one time for one input is a failure.
const MOST_BYTES: usize = 64 << 20;
/// The longest inputs: a reply may have 4 MB.
const LONGEST: usize = 5 << 20;
/// An input that takes longer is a failure.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Counts what is taken and not given back.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's obligations are ours.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's obligations are ours.
        unsafe { System.dealloc(start, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// SplitMix64: a number is enough to run everything again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }

    fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len + 1);
        start..start + self.below((len - start).min(64) + 1)
    }
}

/// What lengths, counts and offsets break at.
const TELLING: [u64; 15] =
    [0, 1, 2, 63, 64, 127, 128, 255, 4095, 65_535, 1 << 18, 1 << 21, 1 << 32, (1 << 63) - 1, u64::MAX];

/// As postcard writes a number: seven bits to a byte, the lowest first.
fn number(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 0x7f {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len());
    match random.below(10) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
        1 if !bytes.is_empty() => bytes[at] = random.next() as u8,
        2 => bytes.truncate(at),
        3 => drop(bytes.drain(random.range(bytes.len()))),
        4 => {
            let piece = bytes[random.range(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        5 => {
            let piece = other[random.range(other.len())].to_vec();
            bytes.splice(at..at, piece);
        }
        6 | 7 => {
            let value = number(TELLING[random.below(TELLING.len())]);
            let replaced = at..(at + random.below(2)).min(bytes.len());
            bytes.splice(replaced, value);
        }
        8 => {
            // A frame's length, or a header's.
            let value = TELLING[random.below(TELLING.len())] as u32;
            let len = bytes.len().min(at + 4) - at;
            bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
        }
        _ => {
            // Now and then much of the same: little that could become much.
            let most = if random.below(1000) == 0 { LONGEST } else { 300 };
            let (value, count) = (random.next() as u8, random.below(most));
            bytes.splice(at..at, std::iter::repeat_n(if value < 128 { 0 } else { value }, count));
        }
    }
    bytes.truncate(LONGEST);
}

/// Makes the length at the front fit again, most of the time: what lies behind it is worth reaching.
fn mend(target: &str, bytes: &mut [u8], random: &mut Random) {
    let header = match target {
        "request" | "reply" => 5,
        "batch" => 4,
        _ => return,
    };
    if bytes.len() > header && random.below(4) > 0 {
        let len = (bytes.len() - header) as u32;
        let len = if target == "batch" { len.min(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0])) } else { len };
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        if header == 5 {
            bytes[4] = 0;
        }
    }
}

/// What is being run, for the report of a failure.
static RUNNING: Mutex<(String, Vec<u8>)> = Mutex::new((String::new(), Vec::new()));
static BEGAN_MILLIS: AtomicU64 = AtomicU64::new(0);

fn save_failure(why: &str) -> ! {
    let running = RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (target, bytes) = &*running;
    let path = std::env::temp_dir().join(format!("feedline-fuzz-{target}-{:016x}", fingerprint(bytes)));
    let _ = std::fs::write(&path, bytes);
    eprintln!("FAILED: {why}\n  the input: {}\n  keep it: cp it to fuzz/corpus/{target}", path.display());
    std::process::exit(1)
}

fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// Runs one input, and gives the memory that it took.
fn run(name: &str, target: Target, bytes: &[u8], began: Instant) -> usize {
    {
        let mut running = RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        running.0.clear();
        running.0.push_str(name);
        running.1.clear();
        running.1.extend_from_slice(bytes);
    }
    BEGAN_MILLIS.store(began.elapsed().as_millis() as u64 + 1, Ordering::Relaxed);
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    target(bytes);
    BEGAN_MILLIS.store(0, Ordering::Relaxed);
    let taken = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    if taken > MOST_BYTES {
        save_failure(&format!("{name}: an input of {} bytes took {taken} bytes of memory", bytes.len()));
    }
    taken
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder(name))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.sort();
    let mut all: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).expect("the corpus can be read")).collect();
    all.extend(seeds(name));
    all
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name)
}

fn write_seeds() {
    for (name, _) in TARGETS {
        std::fs::create_dir_all(folder(name)).expect("the corpus can be written");
        for bytes in seeds(name) {
            let file = folder(name).join(format!("{:016x}", fingerprint(&bytes)));
            std::fs::write(file, bytes).expect("the corpus can be written");
        }
    }
}

fn main() {
    let number_from = |variable: &str| std::env::var(variable).ok().map(|text| text.parse::<u64>().expect(variable));
    if number_from("FUZZ_WRITE").is_some() {
        return write_seeds();
    }
    let secs = Duration::from_secs(number_from("FUZZ_SECS").unwrap_or(5));
    let seed = number_from("FUZZ_SEED").unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
    });
    let wanted = std::env::var("FUZZ_TARGETS").unwrap_or_default();
    let is_wanted = |name: &str| wanted.trim().is_empty() || wanted.split_whitespace().any(|word| word == name);
    let began = Instant::now();
    std::panic::set_hook(Box::new(|panic| save_failure(&panic.to_string())));
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let since = BEGAN_MILLIS.load(Ordering::Relaxed);
            if since > 0 && began.elapsed() > Duration::from_millis(since) + TIMEOUT {
                save_failure("an input takes too long");
            }
        }
    });
    println!("seed {seed} (FUZZ_SEED={seed} runs it again)");
    for (name, target) in TARGETS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let corpus = corpus(name);
        let mut random = Random(seed);
        let mut most = corpus.iter().map(|bytes| run(name, target, bytes, began)).max().unwrap_or(0);
        let (mut executions, start) = (corpus.len() as u64, Instant::now());
        while start.elapsed() < secs {
            let mut bytes = corpus[random.below(corpus.len())].clone();
            let other = &corpus[random.below(corpus.len())];
            for _ in 0..=random.below(6) {
                mutate(&mut bytes, other, &mut random);
            }
            mend(name, &mut bytes, &mut random);
            most = most.max(run(name, target, &bytes, began));
            executions += 1;
        }
        println!("{name}: {executions} inputs in {:.0} s, at most {most} bytes for one", start.elapsed().as_secs_f64());
    }
}
