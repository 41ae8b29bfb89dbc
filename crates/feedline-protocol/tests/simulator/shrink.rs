//! Makes a schedule that goes wrong smaller while it still does, and tells it.

use crate::scenario::Scenario;
use crate::world;

fn violation(scenario: &Scenario) -> Option<String> {
    std::panic::catch_unwind(|| world::run(scenario, false).violation).unwrap_or(Some("it panicked".into()))
}

/// Leaves out what isn't needed: faults, then consumers.
fn shrink(scenario: &Scenario) -> Scenario {
    let mut smallest = scenario.clone();
    loop {
        let without_fault = (0..smallest.faults.len()).map(|index| {
            let mut smaller = smallest.clone();
            smaller.faults.remove(index);
            smaller
        });
        // Faults name consumers by their numbers: only the last can go.
        let without_consumer = (smallest.consumers.len() > 1).then(|| {
            let mut smaller = smallest.clone();
            smaller.consumers.pop();
            let count = smaller.consumers.len();
            smaller.faults.retain(|(_, fault)| fault.consumer().is_none_or(|number| number < count));
            smaller
        });
        let candidates: Vec<Scenario> = without_fault.chain(without_consumer).collect();
        match candidates.into_iter().find(|smaller| violation(smaller).is_some()) {
            Some(smaller) => smallest = smaller,
            None => return smallest,
        }
    }
}

/// What went wrong, and how it came to that.
pub fn report(scenario: &Scenario) -> String {
    let shrunk = shrink(scenario);
    let verdict = world::run(&shrunk, true);
    let last = verdict.history.len().saturating_sub(120);
    format!(
        "seed {}: {}\n\n{shrunk:#?}\n\n{}\n",
        scenario.seed,
        verdict.violation.unwrap_or_else(|| "it does not go wrong when it is told".into()),
        verdict.history[last..].join("\n"),
    )
}
