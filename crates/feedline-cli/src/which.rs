//! `feedline which`: the samples of a step, computed from the feed's plan.

use std::collections::BTreeSet;
use std::time::Duration;

use feedline_core::stats::ServerStats;
use feedline_protocol::plan::Plan;

use crate::args::Which;
use crate::output::{Failed, Misused, print};
use crate::stop::connect;

const TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &Which) -> anyhow::Result<()> {
    let stats = connect(&options.name)?.stats(TIMEOUT)?;
    let name = &options.name;
    let Some(plan) = Plan::of_feed(&stats.order) else {
        let pid = stats.pid;
        let text = match stats.order.split_once(": ") {
            Some((_, order)) if order.contains(" samples") => format!(
                "the order of feed {name:?} (pid {pid}) has a list that only its jobs know: {order}\n  \
                 loader.samples(epoch, step) in one of them names a step's samples"
            ),
            _ => format!(
                "feed {name:?} (pid {pid}) has no plan: which samples come is its loader's secret\n  \
                 feedline.DataLoader(dataset, shuffle=True, name={name:?}) has one"
            ),
        };
        return Err(Failed(text).into());
    };
    let size = match options.batch_size {
        Some(size) => u64::from(size),
        None => batch_size(&stats)?,
    };
    let samples = plan.order().samples();
    let steps = samples.div_ceil(size);
    if options.step >= steps {
        let text = format!("step {}: an epoch of feed {name:?} has {steps} steps of {size} samples", options.step);
        return Err(Failed(text).into());
    }
    let epoch = plan.epoch(options.epoch);
    let numbers = (options.step * size..samples.min((options.step + 1) * size)).map(|index| epoch.at(index).sample);
    if options.json {
        let (epoch, step, seed) = (options.epoch, options.step, plan.seed());
        let numbers: Vec<u64> = numbers.collect();
        print(&format!("{}\n", serde_json::json!({ "epoch": epoch, "step": step, "seed": seed, "samples": numbers })))?;
    } else {
        print(&numbers.map(|number| format!("{number}\n")).collect::<String>())?;
    }
    Ok(())
}

/// The one that all attached jobs have.
fn batch_size(stats: &ServerStats) -> Result<u64, Misused> {
    let sizes: BTreeSet<u64> = stats.consumers.iter().filter_map(|consumer| consumer.batch_size).collect();
    let sizes: Vec<u64> = sizes.into_iter().collect();
    if let [size] = sizes[..] {
        return Ok(size);
    }
    let texts: Vec<String> = sizes.iter().map(u64::to_string).collect();
    let attached =
        if texts.is_empty() { "no job has begun to read".into() } else { format!("jobs have {}", texts.join(", ")) };
    Err(Misused(format!("a step of which batch size? {attached}\n  say which: --batch-size 64")))
}
