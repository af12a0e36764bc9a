// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tracer's side: which section belongs to which operation, and the full cross product.

#![expect(unsafe_code, reason = "fork")]

use core::sync::atomic::Ordering;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::operations::{self, Operation};
use crate::sections::{self, Section};
use crate::shared::{Command, Disturbance, Shared};
use crate::tracer::{Stopped, Traced};
use crate::victim;

/// The CPU a disturbed thread is moved to.
const ELSEWHERE: usize = 1;

struct Lane {
    shared: &'static Shared,
    traced: Traced,
}

pub(crate) fn run() -> ExitCode {
    let sections = sections::all();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if !crate::operations::prepare() {
        fastpath_testkit::skip("abort-lane", "restartable sequences are not available to this process");
        return ExitCode::SUCCESS;
    }
    let shared = Shared::map();
    // SAFETY: this process has one thread here.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        victim::main(shared);
    }
    let lane = Lane { shared, traced: Traced(child) };
    assert_eq!(lane.traced.wait(), Stopped::Itself);

    let mut reached = vec![false; sections.len()];
    let mut covered = std::collections::BTreeSet::new();
    let disturbances: Vec<Disturbance> =
        Disturbance::ALL.into_iter().filter(|&d| d != Disturbance::Migrate || cpus > 1).collect();
    let mut failures = 0usize;
    for number in 0..operations::count() {
        let operation = operations::nth(number);
        let mine = lane.sections_of(number, &sections);
        assert!(!mine.is_empty(), "{}: runs through no section", operation.name);
        let instructions: usize = mine.iter().map(|&index| sections[index].instructions.len()).sum();
        let (mut aborts, mut unreached) = (0usize, 0usize);
        for &index in &mine {
            reached[index] = true;
            for &address in &sections[index].instructions {
                for &disturbance in &disturbances {
                    match lane.one(number, &sections[index], address, disturbance) {
                        Ok(Stop::Covered) => {
                            aborts += 1;
                            covered.insert((address, disturbance as u32));
                        }
                        Ok(Stop::NotOnThisPath) => unreached += 1,
                        Err(why) => {
                            failures += 1;
                            println!(
                                "FAILED {} at {:+} of the section, {disturbance:?}: {why}",
                                operation.name,
                                address - sections[index].start
                            );
                        }
                    }
                }
            }
        }
        println!(
            "{:32} {} section(s), {instructions:3} instructions x {} disturbances: {aborts} aborts, {unreached} not on this path",
            operation.name,
            mine.len(),
            disturbances.len(),
        );
    }
    lane.shared.command.store(Command::Quit as u32, Ordering::Relaxed);
    lane.traced.resume(0);
    assert_eq!(lane.traced.wait(), Stopped::Ended(0));

    let expected = sections.iter().map(|s| s.instructions.len()).sum::<usize>() * disturbances.len();
    for (section, _) in sections.iter().zip(&reached).filter(|(_, hit)| !**hit) {
        println!("UNREACHED section {:#x}..{:#x}", section.start, section.end);
    }
    for section in sections.iter().zip(&reached).filter_map(|(section, hit)| hit.then_some(section)) {
        for &address in &section.instructions {
            if disturbances.iter().any(|&d| !covered.contains(&(address, d as u32))) {
                println!(
                    "UNCOVERED instruction {:#x} of section {:#x}..{:#x}",
                    address, section.start, section.end
                );
            }
        }
    }
    println!(
        "backend: rseq; {} sections; covered {} = Σ instructions × disturbances {expected}; failures {failures}",
        sections.len(),
        covered.len(),
    );
    if covered.len() == expected && failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What became of one planned stop.
enum Stop {
    /// The thread stopped there, was disturbed, aborted once, and the result is right.
    Covered,
    /// The operation does not execute this instruction from the state it was given.
    NotOnThisPath,
}

impl Lane {
    fn start(&self, operation: usize, disturbance: Disturbance, first: u64, second: u64) {
        self.shared.command.store(Command::Run as u32, Ordering::Relaxed);
        self.shared.operation.store(operation as u32, Ordering::Relaxed);
        self.shared.disturbance.store(disturbance as u32, Ordering::Relaxed);
        self.traced.breakpoints(first, second);
        self.traced.resume(0);
    }

    /// The sections an undisturbed run of the operation enters.
    fn sections_of(&self, operation: usize, sections: &[Section]) -> Vec<usize> {
        let mut found = Vec::new();
        for (index, section) in sections.iter().enumerate() {
            self.start(operation, Disturbance::Stop, section.start, 0);
            let mut hit = false;
            loop {
                match self.traced.wait() {
                    Stopped::Breakpoint(at) if at == section.start => {
                        hit = true;
                        self.traced.breakpoints(0, 0);
                        self.traced.resume(0);
                    }
                    Stopped::Itself => break,
                    other => panic!("{}: {other:?}", operations::nth(operation).name),
                }
            }
            if hit {
                found.push(index);
            }
        }
        found
    }

    fn one(
        &self,
        operation: usize,
        section: &Section,
        address: u64,
        disturbance: Disturbance,
    ) -> Result<Stop, String> {
        self.start(operation, disturbance, address, 0);
        match self.traced.wait() {
            Stopped::Breakpoint(at) if at == address => {}
            Stopped::Itself => return Ok(Stop::NotOnThisPath),
            other => return Err(format!("{other:?} instead of the breakpoint")),
        }
        let signal = match disturbance {
            Disturbance::Stop => 0,
            Disturbance::Migrate => {
                self.traced.pin(ELSEWHERE);
                0
            }
            Disturbance::Thread => {
                self.run_helper();
                0
            }
            Disturbance::Signal => libc::SIGUSR1,
        };
        self.traced.breakpoints(0, section.abort);
        self.traced.clear_resume_flag();
        self.traced.resume(signal);
        let mut aborts = 0;
        loop {
            match self.traced.wait() {
                Stopped::Breakpoint(at) if at == section.abort => {
                    aborts += 1;
                    // From here on it shall run undisturbed: the next abort would be ours.
                    self.traced.breakpoints(0, 0);
                    self.traced.resume(0);
                }
                Stopped::Itself => break,
                other => return Err(format!("{other:?} after the disturbance")),
            }
        }
        if aborts != 1 {
            return Err(format!("{aborts} aborts, expected one"));
        }
        let ran = self.shared.disturbed.load(Ordering::Relaxed);
        if ran != u32::from(disturbance.runs_another()) {
            return Err(format!("the disturbing operation ran {ran} times"));
        }
        self.shared.outcome().map(|()| Stop::Covered)
    }

    /// Lets the helper thread run the disturbing operation while the traced thread is stopped.
    fn run_helper(&self) {
        // ORDERING: Release pairs with the helper's Acquire.
        self.shared.helper.store(1, Ordering::Release);
        let start = Instant::now();
        // ORDERING: Acquire pairs with the helper's Release.
        while self.shared.helper.load(Ordering::Acquire) == 1 {
            assert!(start.elapsed() < Duration::from_secs(30), "the helper thread does not answer");
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The name says which operation a failure belongs to.
impl core::fmt::Debug for Operation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name)
    }
}
