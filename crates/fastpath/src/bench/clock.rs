// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counter that times everything, with its frequency measured against the system's clock.

use std::time::{Duration, Instant};

use super::arch;

/// A counter of known frequency.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    hz: f64,
}

impl Clock {
    /// Measures the counter's frequency: three intervals of 20 ms, the median of them.
    pub(crate) fn calibrate() -> Self {
        let mut estimates = [0.0; 3];
        for estimate in &mut estimates {
            let (ticks, start) = read_both();
            std::thread::sleep(Duration::from_millis(20));
            let (ticks_after, end) = read_both();
            *estimate = (ticks_after - ticks) as f64 / (end - start).as_secs_f64();
        }
        estimates.sort_by(f64::total_cmp);
        Self { hz: estimates[1] }
    }

    /// A counter that ticks `hz` times a second, for tests and for figures of other machines.
    #[cfg(test)]
    pub(crate) const fn with_frequency(hz: f64) -> Self {
        Self { hz }
    }

    /// Ticks now. Earlier instructions have completed.
    #[inline]
    #[expect(clippy::unused_self, reason = "only someone with a calibrated clock may read it")]
    pub(crate) fn now(self) -> u64 {
        arch::read()
    }

    /// Ticks that `work` takes.
    #[inline]
    pub(crate) fn time(self, work: impl FnOnce()) -> u64 {
        let start = self.now();
        work();
        self.now() - start
    }

    /// Ticks per second.
    pub(crate) const fn hz(self) -> f64 {
        self.hz
    }

    /// `ticks` in nanoseconds.
    pub(crate) fn ns(self, ticks: f64) -> f64 {
        ticks * 1e9 / self.hz
    }

    /// `ticks` of a duration.
    pub(crate) fn ticks(self, duration: Duration) -> f64 {
        duration.as_secs_f64() * self.hz
    }

    /// The counter's name.
    pub(crate) const fn name() -> &'static str {
        arch::NAME
    }

    /// True if a tick is what the seeds call a cycle.
    pub(crate) const fn reads_cycles() -> bool {
        arch::reads_cycles()
    }
}

/// The counter and the system's clock as close together as they can be had: the tightest of several readings.
fn read_both() -> (u64, Instant) {
    let reading = || {
        let before = arch::read();
        let instant = Instant::now();
        let after = arch::read();
        (after - before, before + (after - before) / 2, instant)
    };
    let (_, ticks, instant) = (0..16).map(|_| reading()).min_by_key(|&(gap, ..)| gap).unwrap_or_else(reading);
    (ticks, instant)
}

#[cfg(test)]
mod tests {
    use super::Clock;

    #[test]
    fn the_counter_advances_and_its_frequency_is_plausible() {
        let clock = Clock::calibrate();
        assert!((1e6..1e11).contains(&clock.hz()), "{} Hz", clock.hz());
        let start = clock.now();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(clock.ns((clock.now() - start) as f64) > 4e6);
    }
}
