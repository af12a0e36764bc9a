// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A preemptive priority scheduler for all processors of the machine.
//!
//! Strict: at any time the most urgent tasks that are ready run, one on each processor; among equals, those that became
//! ready first. One lock guards all that it keeps, with interrupts off, and is handed from task to task across a switch: so
//! nobody goes on with a task whose registers are not saved yet.
//!
//! What can change who should run ends in [`Table::reschedule`]: a task parks, ends or wakes another one, an urgency changes,
//! or the timer's handler finds that a sleep is over, which takes the processor away between any two instructions. If it is
//! another processor that should look, it is *asked*: its flag is set and it is interrupted ([`Machine::kick`]).

use crate::percpu::{PROCESSORS, PerCpu};
use crate::{Machine, arch, interrupts};
use core::cell::{Cell, UnsafeCell};
use core::marker::PhantomData;
use fastpath_cmpxchg::interrupt::InterruptControl;
use fastpath_cmpxchg::{Atomic, Ordering};
use fastpath_rtmutex::kernel::{Key, Native, RawMutex, RawSpin, Scheduler, Signal, SpinOnWord, Task};
use fastpath_slub::tid::backend::Pinning;

/// The caller (on the boot stack), an idle task for each processor, and those a test makes.
pub(crate) const TASKS: usize = FIRST + 8;
const CALLER: usize = 0;
const IDLE: usize = 1;
pub(crate) const FIRST: usize = IDLE + PROCESSORS;
/// The urgency of the caller: below all that a test makes.
pub(crate) const LEAST: u8 = 99;
const STACK_WORDS: usize = 2048;

/// For the first processor's idle task and the tasks of tests. The other idle tasks run where their processor started.
#[repr(C, align(16))]
struct Stacks(UnsafeCell<[[usize; STACK_WORDS]; 1 + TASKS - FIRST]>);
// SAFETY: each is used by one task.
unsafe impl Sync for Stacks {}
static STACKS: Stacks = Stacks(UnsafeCell::new([[0; STACK_WORDS]; 1 + TASKS - FIRST]));

/// The table of the test that runs, a `*const Table<M>`; null between tests.
static TABLE: Atomic<*const ()> = Atomic::new(core::ptr::null());

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Unused,
    Ready,
    Parked,
}

/// What the scheduler keeps of a task. Used under its lock.
pub(crate) struct Control {
    pub(crate) state: Cell<State>,
    /// The urgency it runs at.
    runs_at: Cell<i16>,
    /// When it became ready, for the order among equals.
    since: Cell<u64>,
    token: Cell<bool>,
    deadline: Cell<Option<u64>>,
    stack: Cell<usize>,
    program: Cell<(fn(usize), usize)>,
    /// The processors it may run on, a bit each.
    allowed: Cell<u32>,
    /// One more than the processor it runs on, or 0. Also read without the lock, as a hint.
    runs_on: Atomic<usize>,
}

// SAFETY: every access to a cell is under the scheduler's lock.
unsafe impl Sync for Control {}
// SAFETY: as above.
unsafe impl Send for Control {}

type Irq<M> = <<M as Machine>::Interrupts as InterruptControl>::State;
pub(crate) type T<M> = &'static Task<Tasks<M>>;

/// How tasks are run.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    /// On the first so many processors.
    pub(crate) processors: usize,
    /// Every tick ends the turn of the task it finds, if an equally urgent one waits.
    pub(crate) turns: bool,
    /// What the timer's handler does besides, on each processor.
    pub(crate) handler: Option<fn()>,
}

impl Setup {
    /// The first processor alone.
    pub(crate) const ONE: Self = Self { processors: 1, turns: false, handler: None };
}

pub(crate) struct Table<M: Machine> {
    /// Guards the controls and the cells below.
    lock: SpinOnWord,
    tasks: [Task<Tasks<M>>; TASKS],
    pub(crate) locks: [RawMutex<Tasks<M>>; 8],
    words: [Atomic<u32>; 16],
    now: Cell<u64>,
    stamp: Cell<u64>,
    setup: Setup,
    test: fn(),
    /// The test is over: the other processors leave.
    over: Atomic<bool>,
    /// The interrupt state a task starts with.
    enabled: Irq<M>,
}

pub(crate) fn table<M: Machine>() -> &'static Table<M> {
    // ORDERING: Relaxed: stored before the other processors are started on it, which orders.
    // SAFETY: `on_tasks` stores its table, which outlives all tasks.
    unsafe { &*TABLE.load(Ordering::Relaxed).cast::<Table<M>>() }
}

/// Runs `f` with interrupts off: this processor's area is ours.
fn masked<M: Machine, R>(f: impl FnOnce(&'static PerCpu) -> R) -> R {
    let irq = M::Interrupts::disable();
    let result = f(M::per_cpu());
    // SAFETY: disabled above.
    unsafe { M::Interrupts::restore(irq) };
    result
}

/// Runs `f` with interrupts off and the scheduler's lock, which a switch hands on: it is also ours when `f` returns.
fn locked<M: Machine, R>(f: impl FnOnce(&'static Table<M>) -> R) -> R {
    masked::<M, _>(|_| {
        let table = table::<M>();
        table.lock.lock();
        let result = f(table);
        // SAFETY: taken above, or handed to us by whoever switched to this task.
        unsafe { table.lock.unlock() };
        result
    })
}

impl<M: Machine> Table<M> {
    pub(crate) fn control(&self, task: usize) -> &Control {
        self.tasks[task].data()
    }

    fn ready(&self, control: &Control) {
        self.stamp.set(self.stamp.get() + 1);
        control.since.set(self.stamp.get());
        control.deadline.set(None);
        control.state.set(State::Ready);
        self.call_for(control);
    }

    /// Somebody should perhaps run `task`: asks the processor that runs the least urgent one below it.
    fn call_for(&self, task: &Control) {
        // ORDERING: Relaxed: under the lock.
        if task.state.get() != State::Ready || task.runs_on.load(Ordering::Relaxed) != 0 {
            return;
        }
        let urgency = |processor: usize| match PerCpu::of(processor).current.get() {
            idle if idle == IDLE + processor => i16::MAX,
            other => self.control(other).runs_at.get(),
        };
        let least = (0..self.setup.processors)
            .filter(|&processor| task.allowed.get() & 1 << processor != 0)
            .max_by_key(|&processor| urgency(processor));
        if let Some(processor) = least.filter(|&processor| urgency(processor) > task.runs_at.get()) {
            self.ask(processor);
        }
    }

    /// The processor is to look who should run there.
    fn ask(&self, processor: usize) {
        // ORDERING: Relaxed: what it is to see is under the lock.
        PerCpu::of(processor).pending.store(true, Ordering::Relaxed);
        if processor != M::per_cpu().number {
            M::kick(processor);
        }
    }

    /// The most urgent task that is ready, may run on `processor` and does not run elsewhere.
    fn next(&self, processor: usize) -> Option<usize> {
        (0..TASKS)
            .filter(|&task| !(IDLE..FIRST).contains(&task))
            .filter(|&task| {
                let control = self.control(task);
                // ORDERING: Relaxed: under the lock.
                let elsewhere = ![0, processor + 1].contains(&control.runs_on.load(Ordering::Relaxed));
                control.state.get() == State::Ready
                    && control.allowed.get() & 1 << processor != 0
                    && !elsewhere
            })
            .min_by_key(|&task| (self.control(task).runs_at.get(), self.control(task).since.get()))
    }

    /// Runs whoever should run here. Under the lock; returns when the calling task is to run again, perhaps elsewhere.
    fn reschedule(&self) {
        let here = M::per_cpu();
        // ORDERING: Relaxed, here and below: under the lock.
        here.pending.store(false, Ordering::Relaxed);
        let next = self.next(here.number).unwrap_or(IDLE + here.number);
        let previous = here.current.replace(next);
        if next == previous {
            return;
        }
        self.control(previous).runs_on.store(0, Ordering::Relaxed);
        self.control(next).runs_on.store(here.number + 1, Ordering::Relaxed);
        // What this processor was asked for by several, it did for one: the others' turn, or that of who ran here.
        for processor in 0..self.setup.processors {
            if let Some(waiting) = self.next(processor) {
                self.call_for(self.control(waiting));
            }
        }
        // SAFETY: `next` does not run, so its pointer is what it was switched away with, or its first frame.
        unsafe { arch::switch(self.control(previous).stack.as_ptr(), self.control(next).stack.get()) };
    }

    /// The timer's handler, and that of [`Machine::kick`]. Interrupts are off.
    fn interrupted(&self, here: &'static PerCpu, timer: bool) {
        // The handler is not taken away in the middle.
        here.pinned.set(here.pinned.get() + 1);
        if timer {
            self.lock.lock();
            if here.number == 0 {
                self.now.set(self.now.get() + 1);
                for control in self.tasks.iter().map(Task::data) {
                    let over = control.deadline.get().is_some_and(|at| at <= self.now.get());
                    if control.state.get() == State::Parked && over {
                        self.ready(control);
                    }
                }
            }
            if self.setup.turns {
                self.stamp.set(self.stamp.get() + 1);
                self.control(here.current.get()).since.set(self.stamp.get());
                // ORDERING: Relaxed: our own.
                here.pending.store(true, Ordering::Relaxed);
            }
            // SAFETY: taken above; interrupts are off, so nobody switched.
            unsafe { self.lock.unlock() };
            if let Some(handler) = self.setup.handler {
                handler();
            }
        }
        here.pinned.set(here.pinned.get() - 1);
        let before = here.current.get();
        preempt_if_due::<M>(here, || {
            // ORDERING: Relaxed: under the lock.
            if self.next(here.number).is_some_and(|next| next != before) && before != IDLE + here.number {
                here.preemptions.set(here.preemptions.get() + 1);
            }
        });
    }
}

/// What ends a section in which somebody may have become more urgent: interrupts are off. `look` is called under the lock
/// before the switch.
fn preempt_if_due<M: Machine>(here: &PerCpu, look: impl FnOnce()) {
    // ORDERING: Relaxed: whoever set it interrupts us after that, if it is another processor.
    if here.masked.get() == 0 && here.pinned.get() == 0 && here.pending.load(Ordering::Relaxed) {
        locked::<M, _>(|table| {
            look();
            table.reschedule();
        });
    }
}

/// An interrupt in the time of tasks.
fn interrupted<M: Machine>(timer: bool) {
    // ORDERING: Relaxed: see `table`. A late interrupt finds no table.
    if !TABLE.load(Ordering::Relaxed).is_null() {
        table::<M>().interrupted(M::per_cpu(), timer);
    }
}

/// To be called by the handler of [`Machine::kick`]'s interrupt, on the processor that was kicked.
pub fn kicked<M: Machine>() {
    interrupted::<M>(false);
}

/// Where a task begins.
extern "C" fn begin<M: Machine>() -> ! {
    let table = table::<M>();
    let me = M::per_cpu().current.get();
    let (program, argument) = table.control(me).program.get();
    // SAFETY: handed to us by the switch.
    unsafe { table.lock.unlock() };
    // SAFETY: the state of a running task; interrupts are off since the switch.
    unsafe { M::Interrupts::restore(table.enabled) };
    program(argument);
    locked::<M, _>(|table| {
        table.control(me).state.set(State::Unused);
        table.reschedule();
    });
    unreachable!("an ended task runs")
}

fn idle(_: usize) {
    loop {
        core::hint::spin_loop();
    }
}

/// The scheduler of the machine `M`, as the locks see it.
pub(crate) struct Tasks<M>(PhantomData<M>);

// SAFETY: the area of this processor names the task that runs on it; the tasks live as long as the table, which outlives
// them; interrupts are really off; tokens change under the scheduler's lock, which orders what was done before `unpark`
// with what follows `park`.
unsafe impl<M: Machine> Scheduler for Tasks<M> {
    type RawLock = SpinOnWord;
    type Owner = Native<Task<Self>>;
    type Irq = Irq<M>;
    type Data = Control;

    fn current() -> T<M> {
        masked::<M, _>(|here| &table::<M>().tasks[here.current.get()])
    }
    fn irq_save() -> Irq<M> {
        let irq = M::Interrupts::disable();
        let masked = &M::per_cpu().masked;
        masked.set(masked.get() + 1);
        irq
    }
    fn irq_restore(irq: Irq<M>) {
        let here = M::per_cpu();
        here.masked.set(here.masked.get() - 1);
        preempt_if_due::<M>(here, || {});
        // SAFETY: `irq_save` returned it.
        unsafe { M::Interrupts::restore(irq) };
    }
    fn preempt_disable() {
        masked::<M, _>(|here| here.pinned.set(here.pinned.get() + 1));
    }
    fn preempt_enable() {
        masked::<M, _>(|here| {
            here.pinned.set(here.pinned.get() - 1);
            preempt_if_due::<M>(here, || {});
        });
    }
    fn park(deadline: Option<u64>) {
        locked::<M, _>(|table| {
            let here = M::per_cpu();
            assert_eq!((here.masked.get(), here.pinned.get()), (0, 0), "sleeps with preemption off");
            let control = table.control(here.current.get());
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
        locked::<M, _>(|table| {
            task.data().token.set(true);
            if task.data().state.get() == State::Parked {
                table.ready(task.data());
            }
        });
    }
    fn now() -> u64 {
        locked::<M, _>(|table| table.now.get())
    }
    fn signal(_: &Task<Self>) -> Signal {
        Signal::None
    }
    fn priority_changed(task: T<M>, key: Key) {
        locked::<M, _>(|table| {
            let control = task.data();
            control.runs_at.set(key.prio());
            // ORDERING: Relaxed: under the lock.
            match control.runs_on.load(Ordering::Relaxed) {
                // A waiting one may have become more urgent than what runs, a running one less urgent than what waits.
                0 => table.call_for(control),
                processor => table.ask(processor - 1),
            }
        });
    }
    fn on_cpu(task: &Task<Self>) -> bool {
        // ORDERING: Relaxed: a hint.
        table::<M>().setup.processors > 1 && task.data().runs_on.load(Ordering::Relaxed) != 0
    }
    fn need_resched() -> bool {
        // ORDERING: Relaxed: a hint.
        masked::<M, _>(|here| here.pending.load(Ordering::Relaxed))
    }
    fn relax() {
        core::hint::spin_loop();
    }
}

impl<M: Machine> Tasks<M> {
    /// Makes a task. It may run before this returns.
    pub(crate) fn make(urgency: u8, program: fn(usize), argument: usize) -> T<M> {
        let table = table::<M>();
        let at = (FIRST..TASKS).find(|&task| Self::state(task) == State::Unused).expect("a free task");
        table.tasks[at].set_base(Key::realtime(urgency));
        locked::<M, _>(|table| table.start(at, program, argument, u32::MAX));
        Self::yield_if_due();
        &table.tasks[at]
    }

    fn state(task: usize) -> State {
        locked::<M, _>(|table| table.control(task).state.get())
    }

    /// Whoever should run instead, does.
    fn yield_if_due() {
        masked::<M, _>(|here| preempt_if_due::<M>(here, || {}));
    }

    /// Sleeps until all tasks have ended.
    pub(crate) fn all_ended() {
        while (FIRST..TASKS).any(|at| Self::state(at) != State::Unused) {
            Self::nap(1);
        }
    }

    /// Sleeps for so many ticks.
    pub(crate) fn nap(ticks: u32) {
        let end = <Self as Scheduler>::now() + u64::from(ticks);
        while <Self as Scheduler>::now() < end {
            Self::park(Some(end));
        }
    }

    /// The calling task goes on on this processor, and stays there.
    pub(crate) fn move_to(processor: usize) {
        locked::<M, _>(|table| {
            let here = M::per_cpu();
            let control = table.control(here.current.get());
            control.allowed.set(1 << processor);
            if here.number != processor {
                table.reschedule();
            }
        });
        assert_eq!(masked::<M, _>(|here| here.number), processor);
    }

    /// The number of the calling task, which is also that of the one that a handler interrupted.
    #[cfg(feature = "slub")]
    pub(crate) fn number() -> usize {
        masked::<M, _>(|here| here.current.get())
    }

    /// How often handlers took a processor from a task.
    pub(crate) fn preemptions() -> u32 {
        // Counts of other processors may be a little old.
        (0..table::<M>().setup.processors).map(|processor| PerCpu::of(processor).preemptions.get()).sum()
    }

    /// A shared word of the test.
    pub(crate) fn word(word: usize) -> &'static Atomic<u32> {
        &table::<M>().words[word]
    }
}

impl<M: Machine> Table<M> {
    /// Makes the unused task number `at` ready to run `program`. Under the lock.
    fn start(&self, at: usize, program: fn(usize), argument: usize, allowed: u32) {
        let control = self.control(at);
        control.token.set(false);
        control.allowed.set(allowed);
        control.program.set((program, argument));
        // SAFETY: the stack of an unused task.
        let frame = unsafe {
            let number = at.saturating_sub(FIRST - 1);
            let stack = STACKS.0.get().cast::<[usize; STACK_WORDS]>().add(number).cast::<usize>();
            arch::first_frame(stack, STACK_WORDS, begin::<M>)
        };
        control.stack.set(frame);
        self.ready(control);
    }
}

/// Preemption off: how a task stays on its processor for the slab allocator.
#[derive(Debug)]
pub struct Preemption<M>(PhantomData<fn() -> M>);

impl<M> Preemption<M> {
    /// It has no state.
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M> Default for Preemption<M> {
    fn default() -> Self {
        Self::new()
    }
}

/// Preemption is off while it lives.
#[derive(Debug)]
pub struct PreemptionOff<M: Machine>(PhantomData<fn() -> M>);

// SAFETY: while the count is not 0 the processor goes on with the same task.
unsafe impl<M: Machine> Pinning for Preemption<M> {
    type Guard = PreemptionOff<M>;
    #[inline]
    fn pin(&self) -> PreemptionOff<M> {
        interrupts::between_steps();
        Tasks::<M>::preempt_disable();
        PreemptionOff(PhantomData)
    }
}

impl<M: Machine> Drop for PreemptionOff<M> {
    #[inline]
    fn drop(&mut self) {
        Tasks::<M>::preempt_enable();
    }
}

/// Runs `test` as a task, the least urgent one, with the timer on.
pub(crate) fn on_tasks<M: Machine>(setup: Setup, test: fn()) {
    let least = Key::realtime(LEAST);
    let new = |at| Control {
        state: Cell::new(State::Unused),
        runs_at: Cell::new(least.prio()),
        since: Cell::new(0),
        token: Cell::new(false),
        deadline: Cell::new(None),
        stack: Cell::new(0),
        program: Cell::new((idle, 0)),
        // The caller's stack is the first processor's own.
        allowed: Cell::new(if at == CALLER { 1 } else { u32::MAX }),
        runs_on: Atomic::new(0),
    };
    M::start_timer();
    let enabled = M::Interrupts::disable();
    let table = Table::<M> {
        lock: SpinOnWord::UNLOCKED,
        tasks: core::array::from_fn(|at| Task::new(least, new(at))),
        locks: [const { RawMutex::new() }; 8],
        words: [const { Atomic::new(0) }; 16],
        now: Cell::new(0),
        stamp: Cell::new(0),
        setup,
        test,
        over: Atomic::new(false),
        enabled,
    };
    for processor in 0..setup.processors {
        let area = PerCpu::of(processor);
        area.preemptions.set(0);
        area.current.set(if processor == 0 { CALLER } else { IDLE + processor });
        // ORDERING: Relaxed, here and below: one processor, until the others are started, which orders.
        table.control(area.current.get()).runs_on.store(processor + 1, Ordering::Relaxed);
        area.pending.store(false, Ordering::Relaxed);
    }
    table.start(IDLE, idle, 0, 1);
    table.ready(table.control(CALLER));
    TABLE.store(core::ptr::from_ref(&table).cast(), Ordering::Relaxed);
    interrupts::handle_by(Some(|| interrupted::<M>(true)));
    if setup.processors > 1 {
        M::everywhere(|| if M::per_cpu().number == 0 { run_test::<M>() } else { lend::<M>() });
    } else {
        run_test::<M>();
    }
    M::stop_timer();
    interrupts::handle_by(None);
    for processor in 0..setup.processors {
        PerCpu::of(processor).pending.store(false, Ordering::Relaxed);
    }
    TABLE.store(core::ptr::null(), Ordering::Relaxed);
    for at in FIRST..TASKS {
        assert_eq!(table.control(at).state.get(), State::Unused, "every task ended");
    }
}

/// What the first processor does.
fn run_test<M: Machine>() {
    let table = table::<M>();
    // SAFETY: disabled in `on_tasks`, after the timer was started.
    unsafe { M::Interrupts::restore(table.enabled) };
    (table.test)();
    // ORDERING: Release, paired with the Acquire in `lend`.
    table.over.store(true, Ordering::Release);
}

/// What the others do: they are their idle tasks, and run whatever they are asked to.
fn lend<M: Machine>() {
    let setup = table::<M>().setup;
    if M::per_cpu().number < setup.processors {
        // The first processor's timer is enough for the time; ours is for turns and handlers.
        if setup.turns || setup.handler.is_some() {
            M::start_timer();
        } else {
            M::accept_kicks();
        }
        // ORDERING: Acquire, paired with the Release in `run_test`.
        while !table::<M>().over.load(Ordering::Acquire) {
            core::hint::spin_loop();
        }
        M::stop_timer();
    }
}
