// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A preemptive priority scheduler on the boot processor, and the mutex's suite on it.
//!
//! Strict: at any time the most urgent task that is ready runs; among equals, the one that became ready first. What can
//! change that is followed by [`Table::reschedule`]: a task parks, ends or wakes another one, an urgency changes, or the
//! timer's handler finds that a sleep is over, which takes the processor away between any two instructions.

use crate::{Machine, arch, interrupts};
use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use fastpath_cmpxchg::interrupt::InterruptControl;
use fastpath_cmpxchg::{Atomic, Ordering};
use fastpath_rtmutex::kernel::{Key, LockError, Native, NoLock, RawMutex, Scheduler, Signal, Task, Wait};
use fastpath_testkit::rtmutex_suite::{self as suite, Kernel, Outcome};

/// The caller (on the boot stack), the idle task, and those a test makes.
const TASKS: usize = 8;
const CALLER: usize = 0;
const IDLE: usize = 1;
const STACK_WORDS: usize = 2048;

#[repr(C, align(16))]
struct Stacks(UnsafeCell<[[usize; STACK_WORDS]; TASKS - 1]>);
// SAFETY: each is used by one task.
unsafe impl Sync for Stacks {}
static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_WORDS]; TASKS - 1]));

/// The table of the test that runs, a `*const Table<M>`; null between tests.
static TABLE: Atomic<*const ()> = Atomic::new(core::ptr::null());

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Unused,
    Ready,
    Parked,
}

/// What the scheduler keeps of a task. Changes with interrupts off.
struct Control {
    state: Cell<State>,
    /// The urgency it runs at.
    runs_at: Cell<i16>,
    /// When it became ready, for the order among equals.
    since: Cell<u64>,
    token: Cell<bool>,
    deadline: Cell<Option<u64>>,
    stack: Cell<usize>,
    program: Cell<(fn(usize), usize)>,
}

// SAFETY: one processor; every access is with interrupts off.
unsafe impl Sync for Control {}
// SAFETY: as above.
unsafe impl Send for Control {}

type Irq<M> = <<M as Machine>::Interrupts as InterruptControl>::State;
type T<M> = &'static Task<Tasks<M>>;

struct Table<M: Machine> {
    tasks: [Task<Tasks<M>>; TASKS],
    locks: [RawMutex<Tasks<M>>; 8],
    words: [Cell<u32>; 16],
    current: Cell<usize>,
    now: Cell<u64>,
    stamp: Cell<u64>,
    /// Sections with interrupts off, and with preemption off, that the running task is in.
    masked: Cell<u32>,
    pinned: Cell<u32>,
    /// Something happened that may change who should run.
    pending: Cell<bool>,
    /// How often the handler took the processor from a task.
    preemptions: Cell<u32>,
    /// The interrupt state a task starts with.
    enabled: Irq<M>,
}

fn table<M: Machine>() -> &'static Table<M> {
    // ORDERING: Relaxed: one processor.
    // SAFETY: `on_tasks` stores its table, which outlives all tasks.
    unsafe { &*TABLE.load(Ordering::Relaxed).cast::<Table<M>>() }
}

/// Runs `f` with interrupts off, without looking at who should run.
fn masked<M: Machine, R>(f: impl FnOnce() -> R) -> R {
    let irq = M::Interrupts::disable();
    let result = f();
    // SAFETY: disabled above.
    unsafe { M::Interrupts::restore(irq) };
    result
}

impl<M: Machine> Table<M> {
    fn control(&self, task: usize) -> &Control {
        self.tasks[task].data()
    }

    fn ready(&self, control: &Control) {
        self.stamp.set(self.stamp.get() + 1);
        control.since.set(self.stamp.get());
        control.deadline.set(None);
        control.state.set(State::Ready);
        self.pending.set(true);
    }

    /// Who should run. Interrupts are off.
    fn next(&self) -> usize {
        (0..TASKS)
            .filter(|&task| task != IDLE && self.control(task).state.get() == State::Ready)
            .min_by_key(|&task| (self.control(task).runs_at.get(), self.control(task).since.get()))
            .unwrap_or(IDLE)
    }

    /// Runs whoever should run. Interrupts are off; returns when the calling task is to run again.
    fn reschedule(&self) {
        self.pending.set(false);
        let next = self.next();
        let previous = self.current.replace(next);
        if next != previous {
            // SAFETY: `next` does not run, so its pointer is what it was switched away with, or its first frame.
            unsafe { arch::switch(self.control(previous).stack.as_ptr(), self.control(next).stack.get()) };
        }
    }

    /// What ends a section in which somebody may have become more urgent: interrupts are off.
    fn preempt_if_due(&self) {
        if self.pending.get() && self.masked.get() == 0 && self.pinned.get() == 0 {
            self.reschedule();
        }
    }

    fn tick(&self) {
        self.now.set(self.now.get() + 1);
        for task in 0..TASKS {
            let control = self.control(task);
            if control.state.get() == State::Parked
                && control.deadline.get().is_some_and(|at| at <= self.now.get())
            {
                self.ready(control);
            }
        }
        let current = self.current.get();
        if self.pinned.get() == 0 && current != IDLE && self.next() != current {
            self.preemptions.set(self.preemptions.get() + 1);
        }
        self.preempt_if_due();
    }
}

/// Where a task begins.
extern "C" fn begin<M: Machine>() -> ! {
    let table = table::<M>();
    let me = table.current.get();
    // SAFETY: the state of a running task; interrupts are off since the switch.
    unsafe { M::Interrupts::restore(table.enabled) };
    let (program, argument) = table.control(me).program.get();
    program(argument);
    let _ = M::Interrupts::disable();
    table.control(me).state.set(State::Unused);
    table.reschedule();
    unreachable!("an ended task runs")
}

fn idle(_: usize) {
    loop {
        core::hint::spin_loop();
    }
}

/// The scheduler of the machine `M`, as the locks and their suite see it.
struct Tasks<M>(PhantomData<M>);

// SAFETY: one processor; `current` changes with the stack; the tasks live as long as the table, which outlives them;
// interrupts are really off; tokens change with interrupts off.
unsafe impl<M: Machine> Scheduler for Tasks<M> {
    type RawLock = NoLock;
    type Owner = Native<Task<Self>>;
    type Irq = Irq<M>;
    type Data = Control;

    fn current() -> T<M> {
        masked::<M, _>(|| &table::<M>().tasks[table::<M>().current.get()])
    }
    fn irq_save() -> Irq<M> {
        let irq = M::Interrupts::disable();
        let masked = &table::<M>().masked;
        masked.set(masked.get() + 1);
        irq
    }
    fn irq_restore(irq: Irq<M>) {
        let table = table::<M>();
        table.masked.set(table.masked.get() - 1);
        table.preempt_if_due();
        // SAFETY: `irq_save` returned it.
        unsafe { M::Interrupts::restore(irq) };
    }
    fn preempt_disable() {
        masked::<M, _>(|| table::<M>().pinned.set(table::<M>().pinned.get() + 1));
    }
    fn preempt_enable() {
        masked::<M, _>(|| {
            let table = table::<M>();
            table.pinned.set(table.pinned.get() - 1);
            table.preempt_if_due();
        });
    }
    fn park(deadline: Option<u64>) {
        masked::<M, _>(|| {
            let table = table::<M>();
            let control = table.control(table.current.get());
            let late = deadline.is_some_and(|at| at <= table.now.get());
            if !control.token.get() && !late {
                control.deadline.set(deadline);
                control.state.set(State::Parked);
                table.reschedule();
            }
            control.token.set(false);
        });
    }
    fn unpark(task: T<M>) {
        masked::<M, _>(|| {
            task.data().token.set(true);
            if task.data().state.get() == State::Parked {
                table::<M>().ready(task.data());
            }
        });
    }
    fn now() -> u64 {
        masked::<M, _>(|| table::<M>().now.get())
    }
    fn signal(_: &Task<Self>) -> Signal {
        Signal::None
    }
    fn priority_changed(task: T<M>, key: Key) {
        task.data().runs_at.set(key.prio());
        table::<M>().pending.set(true);
    }
    fn on_cpu(_: &Task<Self>) -> bool {
        false
    }
    fn need_resched() -> bool {
        false
    }
    fn relax() {
        core::hint::spin_loop();
    }
}

impl<M: Machine> Kernel for Tasks<M> {
    type Task = T<M>;
    const STRICT: bool = true;

    fn spawn(urgency: u8, program: fn(usize), argument: usize) -> T<M> {
        let table = table::<M>();
        let at = (IDLE + 1..TASKS)
            .find(|&task| masked::<M, _>(|| table.control(task).state.get()) == State::Unused)
            .expect("a free task");
        table.tasks[at].set_base(Key::realtime(urgency));
        masked::<M, _>(|| {
            start(table, at, program, argument);
            table.preempt_if_due();
        });
        &table.tasks[at]
    }
    fn join_all() {
        let table = table::<M>();
        while (IDLE + 1..TASKS).any(|at| masked::<M, _>(|| table.control(at).state.get()) != State::Unused) {
            Self::sleep(1);
        }
    }
    fn sleep(ticks: u32) {
        let end = <Self as Scheduler>::now() + u64::from(ticks);
        while <Self as Scheduler>::now() < end {
            Self::park(Some(end));
        }
    }
    fn current() -> T<M> {
        <Self as Scheduler>::current()
    }
    fn is_blocked(task: T<M>) -> bool {
        task.is_blocked()
    }
    fn effective(task: T<M>) -> u8 {
        task.effective().prio() as u8
    }
    fn set_base(task: T<M>, urgency: u8) {
        task.set_base(Key::realtime(urgency));
    }
    fn lock(lock: usize) {
        table::<M>().locks[lock].lock();
    }
    fn lock_within(lock: usize, ticks: u32) -> Outcome {
        let wait = Wait::uninterruptible().until(<Self as Scheduler>::now() + u64::from(ticks)).detecting();
        match table::<M>().locks[lock].lock_with(wait) {
            Ok(()) => Outcome::Taken,
            Err(LockError::Deadlock) => Outcome::Deadlock,
            Err(_) => Outcome::TimedOut,
        }
    }
    fn try_lock(lock: usize) -> bool {
        table::<M>().locks[lock].try_lock()
    }
    fn unlock(lock: usize) {
        // SAFETY: the suite unlocks what the calling task locked.
        unsafe { table::<M>().locks[lock].unlock() };
    }
    fn is_locked(lock: usize) -> bool {
        table::<M>().locks[lock].is_locked()
    }
    fn get(word: usize) -> u32 {
        masked::<M, _>(|| table::<M>().words[word].get())
    }
    fn set(word: usize, value: u32) {
        masked::<M, _>(|| table::<M>().words[word].set(value));
    }
}

/// Makes the unused task number `at` ready to run `program`. Interrupts are off.
fn start<M: Machine>(table: &Table<M>, at: usize, program: fn(usize), argument: usize) {
    let control = table.control(at);
    control.token.set(false);
    control.program.set((program, argument));
    // SAFETY: the stack of an unused task; the caller, who has another one, is number 0.
    let frame = unsafe {
        let stack = STACKS.0.get().cast::<[usize; STACK_WORDS]>().add(at - 1).cast::<usize>();
        arch::first_frame(stack, STACK_WORDS, begin::<M>)
    };
    control.stack.set(frame);
    table.ready(control);
}

/// Runs `test` as a task, the least urgent one, with the timer on.
fn on_tasks<M: Machine>(test: fn()) {
    M::start_timer();
    let enabled = M::Interrupts::disable();
    let new = || Control {
        state: Cell::new(State::Unused),
        runs_at: Cell::new(Key::realtime(Tasks::<M>::CALLER).prio()),
        since: Cell::new(0),
        token: Cell::new(false),
        deadline: Cell::new(None),
        stack: Cell::new(0),
        program: Cell::new((idle, 0)),
    };
    let table = Table::<M> {
        tasks: core::array::from_fn(|_| Task::new(Key::realtime(Tasks::<M>::CALLER), new())),
        locks: [const { RawMutex::new() }; 8],
        words: [const { Cell::new(0) }; 16],
        current: Cell::new(CALLER),
        now: Cell::new(0),
        stamp: Cell::new(0),
        masked: Cell::new(0),
        pinned: Cell::new(0),
        pending: Cell::new(false),
        preemptions: Cell::new(0),
        enabled,
    };
    start(&table, IDLE, idle, 0);
    table.ready(table.control(CALLER));
    // ORDERING: Relaxed: one processor.
    TABLE.store(core::ptr::from_ref(&table).cast(), Ordering::Relaxed);
    interrupts::handle_by(Some(|| self::table::<M>().tick()));
    // SAFETY: disabled above, after the timer was started.
    unsafe { M::Interrupts::restore(enabled) };
    test();
    M::stop_timer();
    interrupts::handle_by(None);
    TABLE.store(core::ptr::null(), Ordering::Relaxed);
    for at in IDLE + 1..TASKS {
        assert_eq!(table.control(at).state.get(), State::Unused, "every task ended");
    }
}

/// Test number `N` of the suite.
fn nth<M: Machine, const N: usize>() {
    on_tasks::<M>(suite::tests::<Tasks<M>>()[N].1);
}

/// A task computes while a more urgent one sleeps and wakes: the handler takes the processor away each time, at whatever
/// instruction that is, and the interrupted task notices nothing.
fn preempted<M: Machine>() {
    fn urgent<M: Machine>(_: usize) {
        for turn in 1..=100 {
            Tasks::<M>::sleep(1);
            Tasks::<M>::lock(0);
            Tasks::<M>::set(0, turn);
            Tasks::<M>::unlock(0);
        }
    }
    fn test<M: Machine>() {
        Tasks::<M>::spawn(10, urgent::<M>, 0);
        let (mut here, mut there) = (1_u64, 1_u64);
        while Tasks::<M>::get(0) < 100 {
            for _ in 0..64 {
                here = here.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            }
            Tasks::<M>::lock(0);
            for _ in 0..64 {
                there = core::hint::black_box(there).wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            }
            Tasks::<M>::unlock(0);
            assert_eq!(here, there);
        }
        assert!(table::<M>().preemptions.get() >= 50, "{} preemptions", table::<M>().preemptions.get());
        Tasks::<M>::join_all();
    }
    on_tasks::<M>(test::<M>);
}

/// None of them is left out.
pub(crate) const SKIPPED: Option<&str> = None;

/// The suite's tests, and one of the scheduler itself.
pub(crate) fn cases<M: Machine>() -> [(&'static str, fn()); 9] {
    let tests: [fn(); 9] = [
        nth::<M, 0>,
        nth::<M, 1>,
        nth::<M, 2>,
        nth::<M, 3>,
        nth::<M, 4>,
        nth::<M, 5>,
        nth::<M, 6>,
        nth::<M, 7>,
        preempted::<M>,
    ];
    core::array::from_fn(|at| (crate::RTMUTEX_CASES[at], tests[at]))
}
