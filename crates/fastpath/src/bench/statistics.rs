// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Order statistics: robust where a few rounds were disturbed by something else on the machine.

use super::report::Ratio;

/// What is kept of the rounds of one candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) q1: f64,
    pub(crate) median: f64,
    pub(crate) q3: f64,
    pub(crate) max: f64,
}

impl Summary {
    /// Of `samples`. Nothing measured is all zeros.
    pub(crate) fn of(samples: &[f64]) -> Self {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| quantile(&sorted, share);
        Self { min: at(0.0), q1: at(0.25), median: at(0.5), q3: at(0.75), max: at(1.0) }
    }

    /// The interquartile range over the median.
    pub(crate) fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.q3 - self.q1) / self.median }
    }
}

/// The ratio of two candidates of which round `i` ran in the same moment.
pub(crate) fn paired_ratio(samples: &[f64], baseline: &[f64]) -> Ratio {
    let ratios: Vec<f64> =
        samples.iter().zip(baseline).filter(|(_, base)| **base != 0.0).map(|(a, b)| a / b).collect();
    let summary = Summary::of(&ratios);
    Ratio { median: summary.median, q1: summary.q1, q3: summary.q3 }
}

/// Linear interpolation between the two nearest ranks.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let position = share * last as f64;
    let below = position.floor() as usize;
    let above = position.ceil() as usize;
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

#[cfg(test)]
mod tests {
    use super::{Summary, paired_ratio};

    #[test]
    fn quartiles_of_known_samples() {
        let summary = Summary::of(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!(summary, Summary { min: 1.0, q1: 2.0, median: 3.0, q3: 4.0, max: 5.0 });
        assert!((summary.spread() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(Summary::of(&[1.0, 2.0]), Summary { min: 1.0, q1: 1.25, median: 1.5, q3: 1.75, max: 2.0 });
        assert_eq!(Summary::of(&[]), Summary { min: 0.0, q1: 0.0, median: 0.0, q3: 0.0, max: 0.0 });
    }

    #[test]
    fn one_disturbed_round_does_not_move_the_ratio() {
        let ratio = paired_ratio(&[2.0, 2.0, 900.0, 2.0, 2.0], &[1.0, 1.0, 1.0, 1.0, 1.0]);
        assert_eq!((ratio.median, ratio.q1, ratio.q3), (2.0, 2.0, 2.0));
    }

    #[test]
    fn rounds_are_paired() {
        // The machine got three times slower half way: the ratio did not change.
        let ratio = paired_ratio(&[2.0, 2.0, 6.0, 6.0], &[1.0, 1.0, 3.0, 3.0]);
        assert_eq!((ratio.median, ratio.q1, ratio.q3), (2.0, 2.0, 2.0));
    }
}
