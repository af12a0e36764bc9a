// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Throughput of threads that share a cache line, beyond the CPUs of this machine: a closed queueing network.
//!
//! # The model
//!
//! A round (open, read, close) is *private* time `z`, which no other thread delays, and `d` of *shared* time, spent owning lines
//! that all threads want and that must be fetched for it. The owner is a server with a queue; the threads are customers that never leave. Mean value
//! analysis (Reiser and Lavenberg, 1980) gives the throughput of `n` of them exactly, if service times are exponential:
//!
//! ```text
//! queue(0) = 0
//! response(n) = d(n) * (1 + queue(n - 1))
//! throughput(n) = n / (z + response(n))            throughput(1) = 1 / z: a line that nobody else wants does not move
//! queue(n) = throughput(n) * response(n)
//! ```
//!
//! # What it assumes
//!
//! * All sharing is one queue. Several hot lines would pipeline: the model is pessimistic then.
//! * `z` is what a round costs one thread on files of its own; `d` is whatever explains the two-thread figure of the shared file.
//! * A transfer costs the same from every CPU of a node. Nodes have [`Machine::node`] CPUs, filled one after the other, and a
//!   transfer from another node costs [`Machine::remote`] times as much. The last owner is any of the others, equally likely.
//! * Nothing else saturates: no memory bandwidth, no clock that drops with the number of busy cores.

/// The machine that the curve is carried to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine {
    /// CPUs of a node.
    pub(super) node: usize,
    /// What a transfer between nodes costs, in transfers inside one.
    pub(super) remote: f64,
}

/// The seeds' machine: 96 CPUs in 4 nodes. The factor is an assumption: two to three on two- and four-node servers.
pub(super) const SEEDS: Machine = Machine { node: 24, remote: 2.5 };

/// One workload: seconds of private and of shared time per round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Demand {
    pub(super) private: f64,
    pub(super) shared: f64,
}

impl Machine {
    /// By how much transfers among the first `threads` CPUs are dearer than inside one node.
    fn dearer(self, threads: usize) -> f64 {
        if threads <= 1 {
            return 1.0;
        }
        // For each thread, the others on its node; the rest is remote.
        let (full, last) = (threads / self.node, threads % self.node);
        let same = (full * self.node * (self.node - 1) + last * last.saturating_sub(1)) as f64;
        let pairs = (threads * (threads - 1)) as f64;
        1.0 + (self.remote - 1.0) * (1.0 - same / pairs)
    }
}

impl Demand {
    /// The demand that explains a throughput of `private_one` rounds a second for one thread on its own file, and of `shared_two`
    /// for two threads on one. No sharing to see (two threads twice as fast) is a shared demand of zero.
    pub(super) fn fit(private_one: f64, shared_two: f64) -> Self {
        let private = 1.0 / private_one;
        // throughput(2) falls with `d` from 2 / z to 0: halve the interval. Two threads slower than a hundred times one is no
        // figure of this model.
        let (mut low, mut high) = (0.0, 100.0 * private);
        for _ in 0..80 {
            let middle = f64::midpoint(low, high);
            let demand = Self { private, shared: middle };
            if demand.throughput(2, Machine { node: 2, remote: 1.0 }) > shared_two {
                low = middle;
            } else {
                high = middle;
            }
        }
        Self { private, shared: f64::midpoint(low, high) }
    }

    /// Rounds a second of `threads` threads on `machine`.
    pub(super) fn throughput(self, threads: usize, machine: Machine) -> f64 {
        if threads == 1 {
            // Its lines stay with it: what using them costs is in the private time.
            return 1.0 / self.private;
        }
        let shared = self.shared * machine.dearer(threads);
        let (mut queue, mut throughput) = (0.0, 0.0);
        for n in 1..=threads {
            let response = shared * (1.0 + queue);
            throughput = n as f64 / (self.private + response);
            queue = throughput * response;
        }
        throughput
    }
}

#[cfg(test)]
mod tests {
    use super::{Demand, Machine, SEEDS};

    const FLAT: Machine = Machine { node: 1000, remote: 1.0 };

    fn close(a: f64, b: f64) -> bool {
        (a / b - 1.0).abs() < 1e-9
    }

    #[test]
    fn one_thread_waits_for_nobody() {
        let demand = Demand { private: 3.0, shared: 1.0 };
        assert!(close(demand.throughput(1, SEEDS), 1.0 / 3.0));
    }

    /// Two threads, by hand: the second finds the server busy with probability d / (z + d).
    #[test]
    fn two_threads() {
        let demand = Demand { private: 3.0, shared: 1.0 };
        assert!(close(demand.throughput(2, FLAT), 2.0 / (3.0 + 1.0 * (1.0 + 0.25))));
    }

    #[test]
    fn without_sharing_it_is_linear_and_with_it_bounded() {
        let free = Demand { private: 2.0, shared: 0.0 };
        assert!(close(free.throughput(96, SEEDS), 48.0));
        let bound = Demand { private: 2.0, shared: 0.5 };
        let curve: Vec<f64> = (1..=200).map(|n| bound.throughput(n, FLAT)).collect();
        assert!(curve.is_sorted() && curve.iter().all(|x| *x <= 2.0) && curve[199] > 1.99);
    }

    #[test]
    fn the_fit_finds_what_made_the_figures() {
        for shared in [0.0, 0.01, 0.3, 1.0, 20.0] {
            let demand = Demand { private: 1.0, shared };
            let found = Demand::fit(1.0, demand.throughput(2, FLAT));
            assert!((found.shared - shared).abs() < 1e-6, "{shared}: {found:?}");
        }
        // Faster together than apart: noise, not a negative demand.
        assert!(Demand::fit(1.0, 2.5).shared < 1e-6);
    }

    #[test]
    fn nodes() {
        assert!(close(SEEDS.dearer(24), 1.0));
        // 48: of 47 others 23 are on the same node.
        assert!(close(SEEDS.dearer(48), 1.0 + 1.5 * 24.0 / 47.0));
        assert!(SEEDS.dearer(96) > SEEDS.dearer(48));
    }
}
