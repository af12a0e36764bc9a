// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tables of the kernel's own measurements, in instructions: under `-icount shift=0` the emulator's time advances by one
//! nanosecond an instruction. Prints the lines that `fastpath bench --from-qemu` reads.

use crate::slub::{Boot, Image, SIZING};
use crate::{BootProcessorOnly, Machine};
use core::fmt::Write;
use core::marker::PhantomData;
use core::ptr::NonNull;
use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::interrupt::InterruptControl;
use fastpath_cmpxchg::{Atomic, Ordering};
use fastpath_rtmutex::kernel::{
    Emulated, ForcedSlow, Key, Native, NoLock, OwnerWord, RawMutex, Scheduler, Signal, Task,
};
use fastpath_slub::tid::backend::{IrqOff, Local, Pinning, TidBackend};
use fastpath_slub::{CacheSpec, TidCache};

/// The seeds' number of invocations.
const LOOPS: u32 = 100_000;

/// What `work` takes per operation, in hundredths of an instruction, if it does `LOOPS` of them.
fn measure<M: Machine>(work: impl FnOnce()) -> u64 {
    let start = M::nanoseconds();
    work();
    (M::nanoseconds() - start) * 100 / u64::from(LOOPS)
}

fn line<M: Machine>(family: &str, table: &str, row: &str, column: &str, hundredths: u64, baseline: &str) {
    let _ = writeln!(
        crate::tap::Console::<M>::new(),
        "bench family={family} table={table} row={row} column={column} unit=instructions median={}.{:02} batch={LOOPS} baseline={baseline}",
        hundredths / 100,
        hundredths % 100,
    );
}

/// A scheduler with one task: nothing ever waits. `K` is the owner word.
struct Lone<M, K>(PhantomData<(M, K)>);

/// Names an owner word.
trait Kind<M: Machine>: Sized + 'static {
    type Owner: OwnerWord<Task<Lone<M, Self>>>;
}

struct Slow;
struct Fast;
struct SlowGeneric;
struct FastGeneric;
type Off<M> = Generic<BootProcessorOnly<<M as Machine>::Interrupts>>;
impl<M: Machine> Kind<M> for Slow {
    type Owner = ForcedSlow<Native<Task<Lone<M, Self>>>>;
}
impl<M: Machine> Kind<M> for Fast {
    type Owner = Native<Task<Lone<M, Self>>>;
}
impl<M: Machine> Kind<M> for SlowGeneric {
    type Owner = ForcedSlow<Emulated<Task<Lone<M, Self>>, Off<M>>>;
}
impl<M: Machine> Kind<M> for FastGeneric {
    type Owner = Emulated<Task<Lone<M, Self>>, Off<M>>;
}

/// The one task.
static CURRENT: Atomic<*const ()> = Atomic::new(core::ptr::null());

// SAFETY: one task on one processor, no interrupt uses locks; nothing ever has to wait.
unsafe impl<M: Machine, K: Kind<M>> Scheduler for Lone<M, K> {
    type RawLock = NoLock;
    type Owner = K::Owner;
    type Irq = <M::Interrupts as InterruptControl>::State;
    type Data = ();

    #[inline(always)]
    fn current() -> &'static Task<Self> {
        // ORDERING: Relaxed: one processor.
        // SAFETY: `lock_loop` stores its task, which outlives the loop.
        unsafe { &*CURRENT.load(Ordering::Relaxed).cast() }
    }
    #[inline(always)]
    fn irq_save() -> Self::Irq {
        M::Interrupts::disable()
    }
    #[inline(always)]
    fn irq_restore(irq: Self::Irq) {
        // SAFETY: `irq_save` returned it.
        unsafe { M::Interrupts::restore(irq) };
    }
    fn preempt_disable() {}
    fn preempt_enable() {}
    fn park(_: Option<u64>) {}
    fn unpark(_: &'static Task<Self>) {}
    fn now() -> u64 {
        0
    }
    fn signal(_: &Task<Self>) -> Signal {
        Signal::None
    }
    fn priority_changed(_: &'static Task<Self>, _: Key) {}
    fn on_cpu(_: &Task<Self>) -> bool {
        false
    }
    fn need_resched() -> bool {
        false
    }
    fn relax() {}
}

#[inline(never)]
fn lock_loop<M: Machine, K: Kind<M>>() -> u64 {
    let task = Task::<Lone<M, K>>::new(Key::NORMAL, ());
    let lock = RawMutex::<Lone<M, K>>::new();
    // ORDERING: Relaxed: one processor.
    CURRENT.store((&raw const task).cast(), Ordering::Relaxed);
    measure::<M>(|| {
        for _ in 0..LOOPS {
            lock.lock();
            // SAFETY: locked in the line above.
            unsafe { lock.unlock() };
        }
    })
}

/// A task that never moves, in a kernel without preemption or with a tid that notices.
struct Free;
// SAFETY: one task on one processor.
unsafe impl Pinning for Free {
    type Guard = ();
    #[inline(always)]
    fn pin(&self) {}
}

/// Preemption off and on again around each exchange, with the look whether somebody waits.
struct Toggled;
static PREEMPT_COUNT: Atomic<u32> = Atomic::new(0);
static RESCHEDULE: Atomic<bool> = Atomic::new(false);
struct Off1;
// SAFETY: one task on one processor.
unsafe impl Pinning for Toggled {
    type Guard = Off1;
    #[inline(always)]
    fn pin(&self) -> Off1 {
        // SAFETY: one processor, no handler uses the count.
        unsafe { PREEMPT_COUNT.add_local(1) };
        Off1
    }
}
impl Drop for Off1 {
    #[inline(always)]
    fn drop(&mut self) {
        // ORDERING: Relaxed: one processor.
        // SAFETY: as in `pin`.
        let last = unsafe { PREEMPT_COUNT.fetch_add_local(u32::MAX) } == 1;
        if last && RESCHEDULE.load(Ordering::Relaxed) {
            RESCHEDULE.store(false, Ordering::Relaxed);
        }
    }
}

/// The build without preemption: tid and slot need not be compared.
struct NoPreemption<B>(B);
// SAFETY: the inner backend's; tasks are never moved, as there is one.
unsafe impl<B: TidBackend> TidBackend for NoPreemption<B> {
    type Cell = B::Cell;
    const CELL: Self::Cell = B::CELL;
    const PREEMPTIBLE: bool = false;
    type Pin = B::Pin;
    #[inline(always)]
    fn cpu(&self) -> usize {
        self.0.cpu()
    }
    fn pin(&self) -> B::Pin {
        self.0.pin()
    }
    #[inline(always)]
    fn tid(&self, cell: &Self::Cell) -> usize {
        self.0.tid(cell)
    }
    #[inline(always)]
    fn head(&self, cell: &Self::Cell) -> *mut u8 {
        self.0.head(cell)
    }
    #[inline(always)]
    fn exchange(&self, cpu: usize, cell: &Self::Cell, old: (*mut u8, usize), new: (*mut u8, usize)) -> bool {
        self.0.exchange(cpu, cell, old, new)
    }
}

/// slab_test's two tests with this backend: pairs of several sizes; many allocations, then their frees.
#[inline(never)]
fn slab_test<M: Machine, B: TidBackend>(column: &str, backend: impl Fn() -> B) {
    for (row, size) in [("8", 8), ("64", 64), ("256", 256), ("1024", 1024)] {
        let cache: TidCache<Image, B, 1> =
            TidCache::new(Image, backend(), CacheSpec::new("icount", size), &SIZING);
        let first = cache.alloc().expect("memory");
        // SAFETY: allocated here.
        unsafe { cache.free(first) };
        let pair = measure::<M>(|| {
            for _ in 0..LOOPS {
                let object = cache.alloc().expect("memory");
                // SAFETY: allocated here.
                unsafe { cache.free(object) };
            }
        });
        line::<M>("slab", "pair", row, column, pair, "interrupts_off");
        let mut objects = [NonNull::dangling(); 8192 / 64 - 8];
        let objects = &mut objects[..(8192 / size).saturating_sub(8).clamp(1, 100)];
        let (mut taking, mut giving) = (0, 0);
        let rounds = LOOPS as usize / objects.len();
        for _ in 0..rounds {
            let start = M::nanoseconds();
            for object in &mut *objects {
                *object = cache.alloc().expect("memory");
            }
            let middle = M::nanoseconds();
            for &mut object in &mut *objects {
                // SAFETY: allocated here.
                unsafe { cache.free(object) };
            }
            taking += middle - start;
            giving += M::nanoseconds() - middle;
        }
        let each = (rounds * objects.len()) as u64;
        if size == 64 {
            line::<M>("slab", "many", "alloc", column, taking * 100 / each, "interrupts_off");
            line::<M>("slab", "many", "free", column, giving * 100 / each, "interrupts_off");
        }
        assert_eq!(cache.destroy(), Ok(()));
    }
}

/// Prints the tables, and ends the machine.
pub(crate) fn run<M: Machine>() -> ! {
    let _ = writeln!(
        crate::tap::Console::<M>::new(),
        "\nbench-machine cpu={} arch={} counter=icount hz=1000000000",
        M::SHORT,
        M::ARCH
    );
    for (row, slow, fast) in [
        ("native", lock_loop::<M, Slow> as fn() -> u64, lock_loop::<M, Fast> as fn() -> u64),
        ("generic", lock_loop::<M, SlowGeneric>, lock_loop::<M, FastGeneric>),
    ] {
        line::<M>("rtmutex", "lock-loop", row, "slow_path", slow(), "slow_path");
        line::<M>("rtmutex", "lock-loop", row, "cmpxchg", fast(), "slow_path");
    }
    slab_test::<M, _>("interrupts_off", || IrqOff::<Boot, BootProcessorOnly<M::Interrupts>>::new(Boot));
    if Local::<Boot, Free>::detect(Boot, Free).is_some() {
        let free = || Local::<Boot, Free>::detect(Boot, Free).expect("was there");
        slab_test::<M, _>("tid_toggled", || {
            Local::<Boot, Toggled>::detect(Boot, Toggled).expect("was there")
        });
        slab_test::<M, _>("tid", free);
        slab_test::<M, _>("tid_no_preemption", || NoPreemption(free()));
    }
    M::exit(true)
}
