//! Numbers as people read them.

use feedline_core::size_text;

/// `61 %`; values outside of 0 to 1, and NaN, are clamped.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", sane(share).min(1.0) * 100.0)
}

/// Percent of one core, so it may go beyond 100.
pub(crate) fn cpu(cores: f64) -> String {
    format!("{:.0} %", sane(cores) * 100.0)
}

/// `412.0 MB`, `1.50 GB`: in thousands, as `ring=` and `history=` take them.
pub(crate) fn bytes(number: f64) -> String {
    size_text(sane(number) as u64)
}

/// `950`, `12.4k`, `1.28M`.
pub(crate) fn count(number: f64) -> String {
    let number = sane(number);
    match number {
        0.0..100.0 if number.fract() > 0.0 => format!("{number:.1}"),
        0.0..9_999.5 => format!("{number:.0}"),
        9_999.5..999_950.0 => format!("{:.1}k", number / 1e3),
        999_950.0..999_950_000.0 => format!("{:.2}M", number / 1e6),
        _ => format!("{:.2}G", number / 1e9),
    }
}

/// `7.9`, `1234`: a number that changes keeps its decimals.
pub(crate) fn rate(number: f64) -> String {
    match sane(number) {
        number @ 0.0..99.95 => format!("{number:.1}"),
        number => count(number.round()),
    }
}

/// `0.4 s`, `40 s`, `3m07s`, `2h05m`.
pub(crate) fn secs(number: f64) -> String {
    match sane(number) {
        number @ 0.0..9.95 => format!("{number:.1} s"),
        number @ 9.95..99.5 => format!("{number:.0} s"),
        number => crate::ls::duration_text(number),
    }
}

/// `1 job`, `4 jobs`.
pub(crate) fn some(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn sane(number: f64) -> f64 {
    // Adding 0.0 removes the sign of -0.0, which would be printed.
    if number.is_finite() { number.max(0.0) + 0.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_size() {
        assert_eq!(
            [0.004, 0.615, 7.0, -1.0, -0.0, f64::NAN].map(percent),
            ["0 %", "62 %", "100 %", "0 %", "0 %", "0 %"]
        );
        assert_eq!([f64::NAN, -1.0, 1.5e9].map(bytes), ["0 B", "0 B", "1.50 GB"]);
        assert_eq!(
            [0.0, 0.5, 9.0, 12.4, 9_999.6, 1.28e6, 2e9].map(count),
            ["0", "0.5", "9", "12.4", "10.0k", "1.28M", "2.00G"]
        );
        assert_eq!(
            [0.0, 0.44, 9.97, 40.2, 187.0, f64::INFINITY].map(secs),
            ["0.0 s", "0.4 s", "10 s", "40 s", "3m07s", "0.0 s"]
        );
        assert_eq!([0.0, 5.0, 99.96, 12_345.6].map(rate), ["0.0", "5.0", "100", "12.3k"]);
        assert_eq!([some(1, "job"), some(4, "job")], ["1 job", "4 jobs"]);
    }
}
