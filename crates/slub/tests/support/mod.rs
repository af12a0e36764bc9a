// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host for tests: memory that can fail, a CPU that can be moved, steps that run a script, and a log of reports.
#![allow(dead_code, unused_macros, unused_imports, reason = "each test program uses a part")]
#![allow(
    unreachable_pub,
    missing_debug_implementations,
    missing_docs,
    reason = "private to the test programs"
)]
#![allow(clippy::trivially_copy_pass_by_ref, clippy::new_without_default, reason = "a host is a handle")]

#[cfg(not(loom))]
pub mod fronts;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub mod rseq;

use core::fmt::Write;
use core::ptr::NonNull;
use fastpath_slub::debug::{Report, Text, Track};
use fastpath_slub::{
    Corruption, CpuSlots, CurrentCpu, GraceHead, GracePeriod, Host, PageSource, Place, Refused, Sheaf,
    SheafPool, Side, Sizing, Slab, SpinLock, StaticRegion, Step, TryLockSlots, Wait, When,
};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

pub const PAGES: usize = 2048;
pub const CPUS: usize = 4;
pub const SLOTS: usize = 16;
pub const SIZING: Sizing = Sizing::kernel(CPUS);

thread_local! {
    static CPU: Cell<usize> = const { Cell::new(0) };
    static PINNING: Cell<bool> = const { Cell::new(false) };
    static NODE: Cell<usize> = const { Cell::new(0) };
    /// Where the program is, for the records of allocations.
    pub static PLACE: Cell<usize> = const { Cell::new(0x1000) };
    static CONTEXT: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static SCRIPT: RefCell<Option<Script>> = const { RefCell::new(None) };
}

type Script = (Step, usize, Box<dyn FnOnce()>);

/// Moves this thread to another CPU: what the try-lock backend is told, and where the kernel runs it, as far as the
/// machine has as many.
pub fn run_on(cpu: usize) {
    CPU.set(cpu);
    #[cfg(target_os = "linux")]
    if PINNING.get() {
        static ALLOWED: OnceLock<Vec<usize>> = OnceLock::new();
        let allowed = ALLOWED.get_or_init(|| {
            let set = fastpath_sys::sched::affinity().expect("the own affinity");
            (0..fastpath_sys::sched::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
        });
        fastpath_sys::sched::pin_to(allowed[cpu % allowed.len()] as u32).expect("an allowed CPU");
    }
}

/// From now on [`run_on`] moves this thread for real.
pub fn pin_for_real() {
    PINNING.set(true);
}

/// Moves this thread to another memory node.
pub fn run_on_node(node: usize) {
    NODE.set(node);
}

/// At the `skip + 1`th time this thread reaches `step`, runs `script` there, once: as if it were interrupted.
pub fn at(step: Step, skip: usize, script: impl FnOnce() + 'static) {
    SCRIPT.with_borrow_mut(|slot| *slot = Some((step, skip, Box::new(script))));
}

/// Whether the last script ran.
pub fn script_ran() -> bool {
    SCRIPT.with_borrow(Option::is_none)
}

/// Forgets a script that has not run.
pub fn no_script() {
    SCRIPT.with_borrow_mut(Option::take);
}

/// The CPU of the running test thread.
#[derive(Debug, Clone, Copy)]
pub struct Here;

impl CurrentCpu for Here {
    fn cpu(&self) -> usize {
        CPU.get()
    }
    fn node(&self) -> usize {
        NODE.get()
    }
}

/// A region whose allocations can be made to fail.
pub struct Memory {
    region: &'static StaticRegion<PAGES>,
    /// Links apart from the objects: one per smallest object of each page.
    links: OnceLock<usize>,
    /// Allocations that still succeed; negative: no limit.
    pub left: AtomicI64,
    pub largest_order: AtomicUsize,
    /// Address of the last run that was given out.
    pub last: AtomicUsize,
}

impl Memory {
    pub fn used(&self) -> usize {
        self.region.used()
    }
    pub fn fail_after(&self, count: i64) {
        self.left.store(count, Ordering::SeqCst);
    }
}

// SAFETY: the region's own runs, or none.
unsafe impl PageSource for Memory {
    const PAGE_SHIFT: u32 = 12;
    fn alloc_slab(&self, order: u32, align: usize, node: usize, wait: Wait) -> Option<NonNull<Slab>> {
        if order as usize > self.largest_order.load(Ordering::SeqCst) {
            return None;
        }
        let enough = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| match left {
            0 => None,
            left => Some(if left < 0 { left } else { left - 1 }),
        });
        let slab = enough.ok().and_then(|_| self.region.alloc_slab(order, align, node, wait))?;
        // SAFETY: a live descriptor.
        self.last.store(unsafe { slab.as_ref() }.base().expose_provenance(), Ordering::SeqCst);
        Some(slab)
    }
    unsafe fn free_slab(&self, slab: NonNull<Slab>, wait: Wait) {
        // SAFETY: as the caller promises.
        unsafe { self.region.free_slab(slab, wait) }
    }
    fn slab_of(&self, address: *const u8) -> *mut Slab {
        self.region.slab_of(address)
    }
    fn links(&self, slab: &Slab) -> *mut u16 {
        const PER_PAGE: usize = 4096 / 8;
        let base = *self.links.get_or_init(|| {
            // Not zeros: a source need not clear them.
            vec![0x5a5a_u16; (PAGES + 64) * PER_PAGE].leak().as_mut_ptr().expose_provenance()
        });
        let page = (slab.base().addr() - core::ptr::from_ref(self.region).addr()) / 4096;
        core::ptr::with_exposed_provenance_mut::<u16>(base).wrapping_add(page * PER_PAGE)
    }
}

pub type TryLock = TryLockSlots<Here, CPUS, SLOTS>;

/// The backend of a world.
pub enum Slots {
    TryLock(Box<TryLock>),
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Rseq(rseq::RseqSlots),
}

macro_rules! each {
    ($self:expr, $slots:ident => $body:expr) => {
        match $self {
            Slots::TryLock($slots) => $body,
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Slots::Rseq($slots) => $body,
        }
    };
}

impl Slots {
    /// What the case records call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::TryLock(_) => "sheaf-trylock",
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Self::Rseq(_) => "sheaf-rseq",
        }
    }
}

// SAFETY: passes every operation on to a backend.
unsafe impl CpuSlots for Slots {
    fn pop(&self, slot: usize) -> Option<NonNull<u8>> {
        each!(self, slots => slots.pop(slot))
    }
    unsafe fn push(&self, slot: usize, object: NonNull<u8>) -> bool {
        // SAFETY: as the caller promises.
        each!(self, slots => unsafe { slots.push(slot, object) })
    }
    fn swap(&self, slot: usize, side: Side) -> Result<(), Refused> {
        each!(self, slots => slots.swap(slot, side))
    }
    unsafe fn exchange(&self, slot: usize, place: Place, when: When, sheaf: Sheaf) -> Result<Sheaf, Refused> {
        // SAFETY: as the caller promises.
        each!(self, slots => unsafe { slots.exchange(slot, place, when, sheaf) })
    }
    fn take(&self, slot: usize, cpu: Option<usize>) -> Result<(Sheaf, Sheaf), Refused> {
        each!(self, slots => slots.take(slot, cpu))
    }
    fn cpus(&self) -> usize {
        each!(self, slots => slots.cpus())
    }
    fn fill(&self, slot: usize, capacity: usize) -> usize {
        each!(self, slots => slots.fill(slot, capacity))
    }
    fn node(&self) -> usize {
        NODE.get()
    }
}

/// All that a test's caches share.
pub struct World {
    pub memory: Memory,
    pub slots: Slots,
    sheaves: OnceLock<SheafPool<TestHost>>,
    pub reports: Mutex<Vec<(Corruption, &'static str, usize)>>,
    pub steps: [AtomicUsize; 16],
    /// Texts of the debug flags' reports.
    pub texts: Mutex<Vec<String>>,
    /// Numbers for secrets and shuffles: a counter's mix, or 0 for a host that has none.
    pub random: AtomicUsize,
    /// What slabs of type-stable caches wait for.
    pub grace: OnceLock<&'static Grace>,
}

/// A grace period that ends when the test says so.
#[derive(Default)]
pub struct Grace {
    pub waiting: Mutex<Vec<usize>>,
    pub runs: Mutex<usize>,
    /// Called by each `defer`.
    pub at_defer: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

// SAFETY: heads run in `barrier` only, and tests have no readers.
unsafe impl GracePeriod for Grace {
    unsafe fn defer(&self, head: NonNull<GraceHead>) {
        if let Some(script) = self.at_defer.get() {
            script();
        }
        self.waiting.lock().unwrap().push(head.as_ptr().expose_provenance());
    }
    fn barrier(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        for head in waiting {
            *self.runs.lock().unwrap() += 1;
            let head = NonNull::new(core::ptr::with_exposed_provenance_mut(head)).unwrap();
            // SAFETY: from `defer`, once; the test has no readers.
            unsafe { GraceHead::run(head) };
        }
    }
}

#[derive(Clone, Copy)]
pub struct TestHost(pub &'static World);

impl TestHost {
    /// A world of its own. It is never freed: caches are made to stand in statics.
    pub fn new() -> Self {
        Self::on(Slots::TryLock(Box::new(TryLock::new(Here))))
    }

    /// A world on a backend.
    pub fn on(slots: Slots) -> Self {
        let layout = std::alloc::Layout::new::<StaticRegion<PAGES>>();
        // SAFETY: all zero bytes are a region whose pages are free.
        let region = unsafe {
            let memory: *mut core::ffi::c_void = std::alloc::alloc_zeroed(layout).cast();
            assert!(!memory.is_null());
            &*memory.cast::<StaticRegion<PAGES>>()
        };
        let world = World {
            memory: Memory {
                region,
                links: OnceLock::new(),
                left: AtomicI64::new(-1),
                largest_order: AtomicUsize::new(20),
                last: AtomicUsize::new(0),
            },
            slots,
            sheaves: OnceLock::new(),
            reports: Mutex::new(Vec::new()),
            steps: [const { AtomicUsize::new(0) }; 16],
            texts: Mutex::new(Vec::new()),
            random: AtomicUsize::new(1),
            grace: OnceLock::new(),
        };
        let host = Self(Box::leak(Box::new(world)));
        host.0.sheaves.get_or_init(|| SheafPool::new(host, 1000, &SIZING));
        run_on(0);
        run_on_node(0);
        host
    }

    /// What was reported since the last call.
    pub fn reports(&self) -> Vec<(Corruption, &'static str, usize)> {
        std::mem::take(&mut *self.0.reports.lock().unwrap())
    }

    /// The texts of the debug flags' findings since the last call.
    pub fn texts(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.texts.lock().unwrap())
    }

    /// How often `step` was reached since the last call.
    pub fn count(&self, step: Step) -> usize {
        self.0.steps[step as usize].swap(0, Ordering::SeqCst)
    }

    /// Pages in use by caches, after the sheaves' own slabs were given back.
    pub fn pages(&self) -> usize {
        self.sheaves().slabs().shrink_slabs();
        self.0.memory.used()
    }
}

impl Host for TestHost {
    type Source = Memory;
    type Slots = Slots;
    type Lock = SpinLock;
    fn source(&self) -> &Memory {
        &self.0.memory
    }
    fn slots(&self) -> &Slots {
        &self.0.slots
    }
    fn sheaves(&self) -> &SheafPool<Self> {
        self.0.sheaves.get().expect("made with the world")
    }
    fn context(&self) -> usize {
        CONTEXT.with(|context| *context)
    }
    fn corrupted(&self, what: Corruption, cache: &'static str, object: *mut u8) {
        self.0.reports.lock().unwrap().push((what, cache, object.addr()));
    }
    fn report(&self, report: &Report<'_>) {
        let mut text = Text::<4096>::new();
        write!(text, "{report}").expect("a text takes what fits");
        self.0.texts.lock().unwrap().push(text.as_str().to_owned());
        self.corrupted(report.what, report.cache, report.object);
    }
    fn track(&self, who: &mut Track) {
        who.pid = self.context();
        who.cpu = CPU.get();
        who.frames[0] = PLACE.get();
        who.frames[1] = 0x1234;
    }
    fn grace_period(&self) -> Option<&dyn GracePeriod> {
        self.0.grace.get().map(|grace| *grace as &dyn GracePeriod)
    }
    fn random(&self) -> u64 {
        let seed = self.0.random.load(Ordering::Relaxed);
        if seed == 0 {
            return 0;
        }
        self.0.random.store(seed + 1, Ordering::Relaxed);
        (seed as u64 ^ core::ptr::from_ref(self.0).addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }
    fn step(&self, at: Step) {
        self.0.steps[at as usize].fetch_add(1, Ordering::Relaxed);
        let script = SCRIPT.with_borrow_mut(|slot| match slot {
            Some((step, 0, _)) if *step == at => slot.take(),
            Some((step, skip, _)) if *step == at => {
                *skip -= 1;
                None
            }
            _ => None,
        });
        if let Some((_, _, script)) = script {
            script();
        }
    }
}

/// Implements the suite's trait for a cache type.
macro_rules! object_cache {
    ($wrapper:ident, $cache:ty) => {
        #[derive(Debug)]
        struct $wrapper(&'static $cache);
        fastpath_testkit::object_cache! { [] $wrapper }
    };
}
pub(crate) use object_cache;

/// A static reference to a value that lives as long as the test program.
pub fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Interrupts of the whole test program: a lock of all processors, which a thread may take again.
pub struct AllStop;
static STOPPED: AtomicUsize = AtomicUsize::new(0);

// SAFETY: one thread at a time is between `disable` and `restore`.
unsafe impl fastpath_cmpxchg::interrupt::InterruptControl for AllStop {
    type State = bool;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;
    fn disable() -> bool {
        let me = CONTEXT.with(|context| *context);
        if STOPPED.load(Ordering::SeqCst) == me {
            return false;
        }
        while STOPPED.compare_exchange(0, me, Ordering::SeqCst, Ordering::SeqCst).is_err() {
            std::thread::yield_now();
        }
        true
    }
    unsafe fn restore(outermost: bool) {
        if outermost {
            STOPPED.store(0, Ordering::SeqCst);
        }
    }
}

/// Tests run one task, so nothing can move it while it is inside one call.
#[derive(Debug)]
pub struct OneTask;
// SAFETY: the CPU number changes only in scripts, which run between operations.
unsafe impl fastpath_slub::tid::backend::Pinning for OneTask {
    type Guard = ();
    fn pin(&self) {}
}
