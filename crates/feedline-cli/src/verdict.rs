//! What the numbers mean, in one line, and what to change. Pure: numbers in, words out.

use serde::Serialize;

/// Who holds up whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// There is nothing to judge yet, or any more.
    Quiet,
    /// Jobs wait for the loader.
    LoaderBound,
    /// The loader has not come back for long.
    Stuck,
    /// Jobs wait for one of them.
    HeldBack,
    /// Jobs wait for the disk that the history is on.
    DiskBound,
    /// Nobody waits for data.
    TrainersBound,
    /// Everybody waits a little for somebody.
    Balanced,
}

/// A judgement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// Of which kind.
    pub kind: Kind,
    /// In plain words, with the numbers behind it.
    pub text: String,
}

/// What it is judged by: shares of the time that was looked at.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Of the producer's time: in the loader, copying, waiting.
    pub loading: f64,
    /// See `loading`.
    pub copying: f64,
    /// See `loading`.
    pub waiting: f64,
    /// Of each consumer's time: waiting for data.
    pub consumers: Vec<f64>,
}

/// Judges.
pub fn judge(evidence: &Evidence) -> Verdict {
    if evidence.consumers.is_empty() {
        return Verdict { kind: Kind::Quiet, text: "nobody reads this feed".into() };
    }
    let mean = evidence.consumers.iter().sum::<f64>() / evidence.consumers.len() as f64;
    if mean < 0.1 {
        return Verdict { kind: Kind::TrainersBound, text: "trainers are the bottleneck: nothing to gain here".into() };
    }
    let text = format!("loader-bound: {} jobs wait {:.0} % of the time", evidence.consumers.len(), mean * 100.0);
    Verdict { kind: Kind::LoaderBound, text }
}
