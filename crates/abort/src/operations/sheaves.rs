// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The allocator's three sections, on sheaves of their own.

#![expect(unsafe_code, reason = "critical sections on raw sheaves")]

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;
use std::sync::OnceLock;

use fastpath_percpu::sheaf::{self, Access, Block, CLASSES, SHEAF_BYTES, Slot, Top};

use super::{HOME, Operation, RESULT, elsewhere};
use crate::shared::Disturbance;

/// The class under test.
const CLASS: usize = 3;
/// Word of the sentinel: room for four objects above it.
const SENTINEL: usize = LAST - 4;
const LAST: usize = SHEAF_BYTES / 8 - 1;

#[repr(C, align(2048))]
struct Sheaf(UnsafeCell<[*mut u8; SHEAF_BYTES / 8]>);

/// The sheaves and blocks of both CPUs.
struct World {
    sheaves: [Sheaf; 6],
    blocks: [UnsafeCell<Block>; 2],
}

// SAFETY: the traced thread and its disturber never run at the same time: the lane stops one for the other.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

static WORLD: OnceLock<World> = OnceLock::new();

fn world() -> &'static World {
    WORLD.get().expect("prepare_table() ran")
}

/// Builds blocks and the table. `false`: no sections here.
pub(crate) fn prepare_table() -> bool {
    let empty = || {
        UnsafeCell::new(Block {
            slots: [Slot { main: sheaf::guard_top(), spare: sheaf::guard_top() }; CLASSES],
        })
    };
    let sheaf = || Sheaf(UnsafeCell::new([core::ptr::null_mut(); SHEAF_BYTES / 8]));
    WORLD.get_or_init(|| World { sheaves: core::array::from_fn(|_| sheaf()), blocks: [empty(), empty()] });
    sheaf::SUPPORTED
}

/// The table: two guard entries, then every CPU; only the two in use have blocks of their own.
fn access() -> Access {
    static TABLE: OnceLock<usize> = OnceLock::new();
    let start = *TABLE.get_or_init(|| {
        let cpus = fastpath_percpu::slots() as usize;
        let table: Vec<*mut Block> = (0..cpus + 2)
            .map(|entry| match entry.checked_sub(2) {
                Some(cpu) if cpu == HOME => world().blocks[0].get(),
                Some(cpu) if cpu == elsewhere() => world().blocks[1].get(),
                _ => sheaf::guard_block(),
            })
            .collect();
        table.leak().as_ptr().addr()
    });
    let table = core::ptr::with_exposed_provenance::<*mut Block>(start).wrapping_add(2);
    Access { rseq_offset: fastpath_sys::rseq::area_offset(), table }
}

fn word(sheaf: usize, index: usize) -> Top {
    world().sheaves[sheaf].0.get().cast::<*mut u8>().wrapping_add(index)
}

/// An object: an address nobody dereferences.
fn object(number: usize) -> *mut u8 {
    core::ptr::without_provenance_mut(number * 16)
}

/// Fills a sheaf with the objects `numbers` and gives its top.
fn fill(sheaf: usize, numbers: &[usize]) -> Top {
    for index in 0..=LAST {
        // SAFETY: inside the sheaf, and nobody else runs.
        unsafe { word(sheaf, index).write(core::ptr::null_mut()) };
    }
    for (offset, &number) in numbers.iter().enumerate() {
        // SAFETY: as above.
        unsafe { word(sheaf, SENTINEL + 1 + offset).write(object(number)) };
    }
    word(sheaf, SENTINEL + numbers.len())
}

/// The numbers of the objects in the sheaf with this top.
fn contents(top: Top) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = top;
    loop {
        // SAFETY: inside a sheaf whose sentinel ends the walk, and nobody else runs.
        let object = unsafe { at.read() };
        if object.is_null() {
            found.reverse();
            return found;
        }
        found.push(object.addr() / 16);
        at = at.wrapping_sub(1);
    }
}

fn slot(block: usize) -> &'static mut Slot {
    // SAFETY: nobody else runs while the traced thread sets up or checks.
    unsafe { &mut (*world().blocks[block].get()).slots[CLASS] }
}

fn set_up(home: &[usize], other: &[usize]) {
    *slot(0) = Slot { main: fill(0, home), spare: fill(1, &[]) };
    *slot(1) = Slot { main: fill(2, other), spare: fill(3, &[]) };
    fill(4, &[41, 42]);
    RESULT.store(0, Ordering::Relaxed);
}

#[inline(never)]
fn pop_once() -> *mut u8 {
    // SAFETY: the table covers every CPU number, and all tops lie in static sheaves.
    unsafe { sheaf::pop::<true>(access(), CLASS * 2) }
}

#[inline(never)]
fn push_once(number: usize) -> bool {
    // SAFETY: as above; the object is not null.
    unsafe { sheaf::push::<true>(access(), CLASS * 2, object(number)) }
}

#[inline(never)]
fn exchange_once(old: Slot, new: &Slot) -> bool {
    // SAFETY: as above; the new tops lie in static sheaves that nobody uses.
    unsafe { sheaf::exchange(access(), CLASS * 2, world().blocks[0].get(), old, new) }
}

fn result(value: usize) {
    // ORDERING: Relaxed: read by the same thread.
    RESULT.store(value as u64, Ordering::Relaxed);
}

fn expect(
    how: Disturbance,
    home: &[usize],
    other: &[usize],
    run: fn(&mut Vec<usize>) -> usize,
    disturb: fn(&mut Vec<usize>),
) -> Result<(), String> {
    let mut models = [home.to_vec(), other.to_vec()];
    if how.runs_another() {
        disturb(&mut models[0]);
    }
    let expected = run(&mut models[usize::from(how == Disturbance::Migrate)]);
    let found = [contents(slot(0).main), contents(slot(1).main)];
    if found != models {
        return Err(format!("the sheaves hold {found:?}, expected {models:?}"));
    }
    // ORDERING: Relaxed: written by this thread.
    let value = RESULT.load(Ordering::Relaxed) as usize;
    if value == expected { Ok(()) } else { Err(format!("the result is {value}, expected {expected}")) }
}

const HOME_OBJECTS: &[usize] = &[1, 2, 3];
const OTHER_OBJECTS: &[usize] = &[11, 12];
const FULL: &[usize] = &[1, 2, 3, 4];

fn pop_model(sheaf: &mut Vec<usize>) -> usize {
    sheaf.pop().unwrap_or(0)
}

fn push_model(sheaf: &mut Vec<usize>, number: usize) -> usize {
    let room = sheaf.len() < 4;
    if room {
        sheaf.push(number);
    }
    usize::from(room)
}

/// The pair an exchange expects at home, and the one it puts there.
fn pairs() -> (Slot, Slot) {
    let old = Slot { main: word(0, SENTINEL + 3), spare: word(1, SENTINEL) };
    (old, Slot { main: word(4, SENTINEL + 2), spare: word(0, SENTINEL + 3) })
}

pub(super) static ALL: &[Operation] = &[
    Operation {
        name: "sheaf pop",
        set_up: || set_up(HOME_OBJECTS, OTHER_OBJECTS),
        run: || result(pop_once().addr() / 16),
        disturb: || _ = push_once(77),
        check: |how| expect(how, HOME_OBJECTS, OTHER_OBJECTS, pop_model, |sheaf| _ = push_model(sheaf, 77)),
    },
    Operation {
        name: "sheaf pop, against pop",
        set_up: || set_up(HOME_OBJECTS, OTHER_OBJECTS),
        run: || result(pop_once().addr() / 16),
        disturb: || _ = pop_once(),
        check: |how| expect(how, HOME_OBJECTS, OTHER_OBJECTS, pop_model, |sheaf| _ = pop_model(sheaf)),
    },
    Operation {
        name: "sheaf pop, empty",
        set_up: || set_up(&[], &[]),
        run: || result(pop_once().addr() / 16),
        disturb: || _ = pop_once(),
        check: |how| expect(how, &[], &[], pop_model, |_| ()),
    },
    Operation {
        name: "sheaf push",
        set_up: || set_up(HOME_OBJECTS, OTHER_OBJECTS),
        run: || result(usize::from(push_once(99))),
        disturb: || _ = pop_once(),
        check: |how| {
            expect(
                how,
                HOME_OBJECTS,
                OTHER_OBJECTS,
                |sheaf| push_model(sheaf, 99),
                |sheaf| _ = pop_model(sheaf),
            )
        },
    },
    Operation {
        name: "sheaf push, against push",
        set_up: || set_up(HOME_OBJECTS, OTHER_OBJECTS),
        run: || result(usize::from(push_once(99))),
        disturb: || _ = push_once(77),
        check: |how| {
            expect(
                how,
                HOME_OBJECTS,
                OTHER_OBJECTS,
                |sheaf| push_model(sheaf, 99),
                |sheaf| _ = push_model(sheaf, 77),
            )
        },
    },
    Operation {
        name: "sheaf push, full",
        set_up: || set_up(FULL, FULL),
        run: || result(usize::from(push_once(99))),
        disturb: || _ = push_once(77),
        check: |how| expect(how, FULL, FULL, |sheaf| push_model(sheaf, 99), |_| ()),
    },
    Operation {
        name: "sheaf exchange",
        set_up: || {
            set_up(HOME_OBJECTS, OTHER_OBJECTS);
            let (old, new) = pairs();
            debug_assert_eq!(*slot(0), old);
            let _ = new;
        },
        run: || {
            let (old, new) = pairs();
            result(usize::from(exchange_once(old, &new)));
        },
        disturb: || _ = pop_once(),
        check: |how| {
            let (old, new) = pairs();
            let mut after_pop = old;
            after_pop.main = after_pop.main.wrapping_sub(1);
            let (expected, done) = match how {
                Disturbance::Stop => (new, 1),
                // The thread is no longer on the CPU whose block it names.
                Disturbance::Migrate => (old, 0),
                // The pair is no longer the one it names.
                Disturbance::Thread | Disturbance::Signal => (after_pop, 0),
            };
            let found = *slot(0);
            // ORDERING: Relaxed: written by this thread.
            let value = RESULT.load(Ordering::Relaxed);
            if found == expected && value == done {
                Ok(())
            } else {
                Err(format!("the pair is {found:?} and the result {value}, expected {expected:?} and {done}"))
            }
        },
    },
];
