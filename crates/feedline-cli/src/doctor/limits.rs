//! How much memory, how many descriptors, mappings and cores there are.

use std::fs;

use feedline_core::options::Name;
use feedline_core::{MemoryLimits, Reader, size_text, text};
use rustix::process::{Resource, getrlimit};
use serde_json::json;

use super::report::Check;

/// A ring of the smallest size, mapped twice, and what goes with it.
const LEAST_BYTES: u64 = 64 << 20;
/// Enough for rings of large batches.
const GOOD_BYTES: u64 = 1 << 30;
/// A server admits one job for each 8 descriptors.
const LEAST_DESCRIPTORS: u64 = 64;
const GOOD_DESCRIPTORS: u64 = 512;
/// Linux's default for a process.
const USUAL_MAPPINGS: u64 = 65_530;

pub(super) fn checks() -> Vec<Check> {
    let memory = MemoryLimits::read();
    vec![
        available(memory.available_bytes()),
        group(&memory),
        address_space(&memory),
        overcommit(),
        descriptors(),
        mappings(),
        shared_memory_folder(),
        cores(),
    ]
}

fn available(bytes: u64) -> Check {
    let name = "memory";
    let text = size_text(bytes);
    let small = text![Name::ring.of_value("64MB")].worded(Reader::CommandLine);
    let check = match bytes {
        0..LEAST_BYTES => Check::bad(
            name,
            format!("rings may take {text}: too little for any"),
            format!("make room, or raise the limit below, to {} at least", size_text(LEAST_BYTES)),
        ),
        LEAST_BYTES..GOOD_BYTES => Check::note(
            name,
            format!("rings may take {text}"),
            format!("large batches will be refused; serve with a small ring, such as {small}, and little history"),
        ),
        u64::MAX.. => Check::note(name, "nobody tells how much there is", "mount /proc"),
        _ => Check::ok(name, format!("rings may take {text}")),
    };
    check.with(json!({"available_bytes": bytes}))
}

fn group(memory: &MemoryLimits) -> Check {
    let name = "memory limit";
    let Some(group) = memory.group else {
        return Check::ok(name, "none from a control group").with(json!({"limit_bytes": null}));
    };
    let (limit, left) = (size_text(group.limit_bytes), size_text(group.left_bytes));
    let found = format!("control group: {left} of {limit} left");
    let check = if group.left_bytes < LEAST_BYTES {
        Check::bad(name, found, "give the container or the job more memory: docker run --memory, srun --mem")
    } else {
        // A group of version 1 without a limit reports one of nearly 2^63.
        let is_none = group.limit_bytes >= 1 << 60;
        Check::ok(name, if is_none { "none from a control group".into() } else { found })
    };
    check.with(json!({"limit_bytes": group.limit_bytes, "left_bytes": group.left_bytes}))
}

fn address_space(memory: &MemoryLimits) -> Check {
    let name = "address space";
    let Some(bytes) = memory.address_space_bytes else { return Check::ok(name, "unlimited") };
    let found = format!("ulimit -v leaves room for a mirrored ring of {}", size_text(bytes));
    let check = if bytes < LEAST_BYTES {
        Check::bad(name, found, "ulimit -v unlimited, in the shell or in the scheduler's limits")
    } else {
        Check::note(
            name,
            found,
            "ulimit -v unlimited: it limits addresses, not memory, and a ring needs twice its size",
        )
    };
    check.with(json!({"ring_bytes": bytes}))
}

fn overcommit() -> Check {
    let name = "overcommit";
    let mode = fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    let words = match mode.trim() {
        "0" => "heuristic",
        "1" => "always",
        "2" => {
            let found = "strict (vm.overcommit_memory=2): memory can be refused before it is used up";
            return Check::note(name, found, "if rings are refused: sysctl vm.overcommit_memory=0, or smaller rings");
        }
        _ => "unknown",
    };
    Check::ok(name, words)
}

fn descriptors() -> Check {
    let name = "descriptors";
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(u64::MAX);
    let most = limit.maximum.map_or_else(|| "unlimited".to_owned(), |most| most.to_string());
    let found = if soft == u64::MAX { "unlimited".to_owned() } else { format!("{soft} (ulimit -n), at most {most}") };
    let advice = match limit.maximum {
        Some(most) if most < GOOD_DESCRIPTORS => {
            "have the limit raised to 4096: /etc/security/limits.conf, docker run --ulimit nofile=4096".to_owned()
        }
        most => format!("ulimit -n {}: a server takes one job for each 8 of them", most.unwrap_or(4096).min(4096)),
    };
    let check = match soft {
        0..LEAST_DESCRIPTORS => Check::bad(name, found, advice),
        LEAST_DESCRIPTORS..GOOD_DESCRIPTORS => Check::note(name, found, advice),
        _ => Check::ok(name, found),
    };
    check.with(json!({"soft": limit.current, "hard": limit.maximum}))
}

fn mappings() -> Check {
    let name = "mappings";
    let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
    let Ok(most) = text.trim().parse::<u64>() else { return Check::ok(name, "unknown how many a process may have") };
    let found = format!("{most} for a process (vm.max_map_count)");
    let check = if most < USUAL_MAPPINGS {
        Check::note(name, found, format!("sysctl vm.max_map_count={USUAL_MAPPINGS}, if jobs keep many batches"))
    } else {
        Check::ok(name, found)
    };
    check.with(json!({"max_map_count": most}))
}

fn shared_memory_folder() -> Check {
    let size = rustix::fs::statvfs("/dev/shm").map(|stat| stat.f_blocks.saturating_mul(stat.f_frsize));
    let size_text = size.map_or_else(|_| "not there".to_owned(), size_text);
    let found = format!("{size_text}: no matter, rings are in memfds; loaders' own workers may need it");
    Check::ok("/dev/shm", found).with(json!({"size_bytes": size.ok()}))
}

fn cores() -> Check {
    let name = "cores";
    let online = fs::read_to_string("/proc/cpuinfo")
        .map_or(0, |text| text.lines().filter(|line| line.starts_with("processor")).count());
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let found = match online {
        0 => format!("{allowed} to run on"),
        online if online > allowed => format!("{allowed} to run on, of the machine's {online}"),
        _ => format!("{allowed}, all of the machine's"),
    };
    Check::ok(name, found).with(json!({"allowed": allowed, "machine": online}))
}
