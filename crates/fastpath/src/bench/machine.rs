// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The facts that stand beside every figure: which machine, in which state.

use std::fs;

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::pin;

/// Where a benchmark ran.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Machine {
    /// The CPU's name.
    pub(crate) cpu: String,
    /// As Rust calls it.
    pub(crate) arch: String,
    /// CPUs that are online, as the kernel lists them.
    pub(crate) online: String,
    /// CPUs this process may use.
    pub(crate) allowed: String,
    /// The CPU the measuring thread is kept on; absent if it is not kept on one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) pinned: Option<usize>,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Whether it is a virtual machine.
    #[expect(clippy::struct_field_names, reason = "its usual name")]
    pub(crate) virtual_machine: bool,
    /// The counter that figures in cycles come from.
    pub(crate) counter: String,
    /// Its frequency in Hz, as measured against the system's clock.
    pub(crate) counter_hz: f64,
    /// Whether its ticks are cycles at the nominal frequency.
    pub(crate) counter_is_cycles: bool,
    /// The frequency governor, if the kernel has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) governor: Option<String>,
    /// Load average of the last minute, before the run.
    pub(crate) load: f64,
    /// Transparent huge pages: always, madvise or never.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) huge_pages: Option<String>,
}

impl Machine {
    /// Looks around. Takes some 60 ms for the counter's frequency.
    pub(crate) fn observe() -> Self {
        Self::with_clock(Clock::calibrate(), &pin::allowed(), None)
    }

    /// Looks around, the counter being known; `allowed` are the CPUs this process may use.
    pub(crate) fn with_clock(clock: Clock, allowed: &[usize], pinned: Option<usize>) -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let flags = field(&cpuinfo, "flags").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            cpu: ["model name", "Processor", "uarch", "CPU part"]
                .iter()
                .find_map(|name| field(&cpuinfo, name))
                .unwrap_or_else(|| "unknown".to_owned()),
            arch: std::env::consts::ARCH.to_owned(),
            online: line("/sys/devices/system/cpu/online").unwrap_or_else(|| "unknown".to_owned()),
            allowed: pin::list(allowed),
            pinned,
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            virtual_machine: flags.split(' ').any(|flag| flag == "hypervisor"),
            counter: Clock::name().to_owned(),
            counter_hz: clock.hz().round(),
            counter_is_cycles: Clock::reads_cycles(),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0.0),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text)),
        }
    }

    /// As text, one fact or two a line.
    pub(crate) fn lines(&self) -> Vec<String> {
        let kind = if self.virtual_machine { " (virtual machine)" } else { "" };
        let pinned =
            self.pinned.map_or_else(|| "not pinned".to_owned(), |cpu| format!("pinned to CPU {cpu}"));
        let governor = self.governor.as_deref().unwrap_or("none to see");
        vec![
            format!("{}, {}{kind}", self.cpu, self.arch),
            format!("Linux {}, CPUs {} online, {} allowed, {pinned}", self.kernel, self.online, self.allowed),
            format!(
                "counter {} at {:.3} MHz, frequency governor {governor}, load {:.2}, huge pages {}",
                self.counter,
                self.counter_hz / 1e6,
                self.load,
                self.huge_pages.as_deref().unwrap_or("unknown")
            ),
        ]
    }
}

/// The value of the first `name : value` line of a file like /proc/cpuinfo.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim().to_owned())
}

/// The first line of a file.
pub(crate) fn line(path: &str) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// The word in brackets: `always [madvise] never`.
pub(crate) fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{chosen, field};

    #[test]
    fn kernel_files_are_read() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("none"), None);
        assert_eq!(
            field("processor\t: 0\nmodel name\t: Foo @ 2GHz\n", "model name").as_deref(),
            Some("Foo @ 2GHz")
        );
    }
}
