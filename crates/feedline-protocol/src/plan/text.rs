//! Orders in words: what a state and a feed say of theirs. Two orders that differ have different words.
//!
//! ```text
//! shuffled, 100 samples
//! weighted with replacement, 50 of 100 samples (weights 1f0c3a5be24d8870)
//! a mixture of 2 datasets, 90 samples [60: shuffled, 60 samples | 9: sequential, 9 samples] by 2 : 1, from sample 900 on by 1 : 1
//! ```
//!
//! Orders without a list can be made again from their words; of a list there is only a fingerprint.

use std::fmt;

use super::mixture::Mixture;
use super::order::{Order, Parts};
use super::random::Key;

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let samples = self.samples();
        match self {
            Self::Sequential(_) => write!(f, "sequential, {samples} samples"),
            Self::Shuffled(_) => write!(f, "shuffled, {samples} samples"),
            Self::Weighted(weighted) => {
                let how = if weighted.is_with_replacement() { "with" } else { "without" };
                let weights = weighted.weights();
                let mark = fingerprint(weights.iter().map(|weight| weight.to_bits()));
                write!(f, "weighted {how} replacement, {samples} of {} samples (weights {mark:016x})", weights.len())
            }
            Self::Subset { samples: among, order } => {
                let mark = fingerprint(among.iter().copied());
                write!(f, "a subset of {} samples ({order}; list {mark:016x})", among.len())
            }
            Self::Concatenation(parts) => {
                write!(f, "{} datasets one after the other, {samples} samples {parts}", parts.len())
            }
            Self::Mixture(mixture) => {
                write!(f, "a mixture of {} datasets, {samples} samples {mixture}", mixture.parts())
            }
        }
    }
}

impl fmt::Display for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.iter().enumerate() {
            let before = if number == 0 { "[" } else { " | " };
            write!(f, "{before}{}: {}", part.len, part.order)?;
        }
        f.write_str(if self.len() == 0 { "[]" } else { "]" })
    }
}

/// Its parts and weights.
impl fmt::Display for Mixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.orders().fmt(f)?;
        for (start, weights) in self.schedule() {
            let weights: Vec<String> = weights.iter().map(f64::to_string).collect();
            let from = if start == 0 { String::new() } else { format!(", from sample {start} on") };
            write!(f, "{from} by {}", weights.join(" : "))?;
        }
        Ok(())
    }
}

/// Tells lists apart: two lists with the same one are found by nobody who doesn't search for them.
fn fingerprint(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(Key::new(0), Key::with).number(0)
}

impl Order {
    /// The order that these words say; `None` if they are no order's, or if a list would be needed.
    pub fn from_words(words: &str) -> Option<Self> {
        let mut words = Words(words);
        let order = words.order()?;
        words.0.is_empty().then_some(order)
    }
}

/// What is left to read.
struct Words<'a>(&'a str);

impl<'a> Words<'a> {
    fn skip(&mut self, prefix: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(prefix)?;
        Some(())
    }

    fn read<T: std::str::FromStr>(&mut self, belongs: fn(char) -> bool) -> Option<T> {
        let end = self.0.find(|c| !belongs(c)).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        number.parse().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.read(|c| c.is_ascii_digit())
    }

    fn order(&mut self) -> Option<Order> {
        for kind in [Order::Sequential, Order::Shuffled] {
            let name = if matches!(kind(0), Order::Shuffled(_)) { "shuffled, " } else { "sequential, " };
            if self.skip(name).is_some() {
                let samples = self.number()?;
                self.skip(" samples")?;
                return Some(kind(samples));
            }
        }
        let is_mixture = self.skip("a mixture of ").is_some();
        self.number()?;
        self.skip(if is_mixture { " datasets, " } else { " datasets one after the other, " })?;
        let samples = self.number()?;
        self.skip(" samples ")?;
        let parts = self.parts()?;
        if !is_mixture {
            return Some(Order::Concatenation(parts));
        }
        self.skip(" by ")?;
        let mut mixture = Mixture::new(parts, &self.weights()?, samples).ok()?;
        while self.skip(", from sample ").is_some() {
            let start = self.number()?;
            self.skip(" on by ")?;
            mixture = mixture.then(start, &self.weights()?).ok()?;
        }
        Some(Order::Mixture(mixture))
    }

    fn parts(&mut self) -> Option<Parts> {
        let mut parts = Vec::new();
        self.skip("[")?;
        while self.skip("]").is_none() {
            if !parts.is_empty() {
                self.skip(" | ")?;
            }
            let len = self.number()?;
            self.skip(": ")?;
            parts.push((len, self.order()?));
        }
        Some(Parts::new(parts))
    }

    fn weights(&mut self) -> Option<Vec<f64>> {
        let mut weights = vec![self.weight()?];
        while self.skip(" : ").is_some() {
            weights.push(self.weight()?);
        }
        Some(weights)
    }

    fn weight(&mut self) -> Option<f64> {
        self.read(|c| c.is_ascii_digit() || c == '.')
    }
}
