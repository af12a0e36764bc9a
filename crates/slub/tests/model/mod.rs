// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! A small host whose every atomic is loom's: made anew for each execution, and torn down at its end.
#![allow(
    dead_code,
    unreachable_pub,
    missing_debug_implementations,
    missing_docs,
    reason = "private to the models"
)]
#![allow(clippy::trivially_copy_pass_by_ref, reason = "a host is a handle")]

use core::ptr::NonNull;
use fastpath_slub::{CurrentCpu, Host, PageSource, RawLock, SheafPool, Sizing, Slab, TryLockSlots, Wait};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

pub const PAGES: usize = 20;
pub const SIZING: Sizing = Sizing { page_shift: 12, min_order: 0, max_order: 0, min_objects: 1, cpus: 2 };

loom::thread_local! {
    static CPU: Cell<usize> = Cell::new(0);
    static CONTEXT: Cell<usize> = Cell::new(1);
}

/// This model thread from now on runs on `cpu`, as the thread `context` (not 0).
pub fn run_as(cpu: usize, context: usize) {
    CPU.with(|cell| cell.set(cpu));
    CONTEXT.with(|cell| cell.set(context));
}

#[derive(Clone, Copy)]
pub struct Here;

impl CurrentCpu for Here {
    fn cpu(&self) -> usize {
        CPU.with(Cell::get)
    }
}

pub type Slots = TryLockSlots<Here, 2, 1>;

/// Pages and descriptors on the heap: model threads have small stacks. What is under test is not the source, so its own
/// bookkeeping is invisible to loom, except for one word that orders the owners of a page.
pub struct Source {
    pages: *mut u8,
    slabs: Vec<Slab>,
    used: std::sync::Mutex<[bool; PAGES]>,
    order: loom::sync::atomic::AtomicUsize,
}

const BYTES: std::alloc::Layout = match std::alloc::Layout::from_size_align(PAGES << 12, 4096) {
    Ok(layout) => layout,
    Err(_) => panic!(),
};

impl Source {
    fn new() -> Self {
        // SAFETY: a layout with a size.
        let pages = unsafe { std::alloc::alloc_zeroed(BYTES) };
        let slabs = (0..PAGES).map(|_| Slab::new()).collect();
        let order = loom::sync::atomic::AtomicUsize::new(0);
        Self { pages, slabs, used: std::sync::Mutex::new([false; PAGES]), order }
    }
    pub fn used(&self) -> usize {
        self.used.lock().unwrap().iter().filter(|used| **used).count()
    }
    /// The address of the first page.
    pub fn base(&self) -> *mut u8 {
        self.pages
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // SAFETY: from `new`.
        unsafe { std::alloc::dealloc(self.pages, BYTES) };
    }
}

// SAFETY: a page has one user at a time, and `order` orders one after the other.
unsafe impl PageSource for Source {
    const PAGE_SHIFT: u32 = 12;
    fn alloc_slab(&self, order: u32, _: usize, _: usize, _: Wait) -> Option<NonNull<Slab>> {
        assert_eq!(order, 0);
        self.order.fetch_add(1, loom::sync::atomic::Ordering::AcqRel);
        let mut used = self.used.lock().unwrap();
        let page = used.iter().position(|used| !used)?;
        used[page] = true;
        let slab = &self.slabs[page];
        // SAFETY: nobody else has the page.
        unsafe { slab.set_base(self.pages.add(page << 12)) };
        Some(NonNull::from(slab))
    }
    unsafe fn free_slab(&self, slab: NonNull<Slab>, _: Wait) {
        self.order.fetch_add(1, loom::sync::atomic::Ordering::AcqRel);
        let page = self
            .slabs
            .iter()
            .position(|own| core::ptr::eq(own, slab.as_ptr()))
            .expect("a page of this source");
        assert!(core::mem::take(&mut self.used.lock().unwrap()[page]), "given back twice");
    }
    fn slab_of(&self, address: *const u8) -> *mut Slab {
        let page = address.addr().wrapping_sub(self.pages.addr()) >> 12;
        self.slabs.get(page).map_or(core::ptr::null_mut(), |slab| core::ptr::from_ref(slab).cast_mut())
    }
}

// SAFETY: see the impl of `PageSource`.
unsafe impl Sync for Source {}

/// loom's own lock: a waiting thread is not run, where a spinning one would be run for nothing.
pub struct ModelLock {
    mutex: loom::sync::Mutex<()>,
    /// Written by the holder only, so loom need not know it.
    held: std::cell::UnsafeCell<Option<(usize, loom::sync::MutexGuard<'static, ()>)>>,
    owner: AtomicUsize,
}

// SAFETY: `held` is touched by the holder only.
unsafe impl Sync for ModelLock {}
// SAFETY: models move nothing while a lock is held.
unsafe impl Send for ModelLock {}

impl ModelLock {
    fn keep(&self, context: usize, guard: loom::sync::MutexGuard<'_, ()>) {
        self.owner.store(context, Ordering::SeqCst);
        // SAFETY: held; the guard is dropped in `unlock`, before the lock is.
        unsafe {
            let guard = core::mem::transmute::<
                loom::sync::MutexGuard<'_, ()>,
                loom::sync::MutexGuard<'static, ()>,
            >(guard);
            *self.held.get() = Some((context, guard));
        }
    }
}

// SAFETY: loom's mutex.
unsafe impl RawLock for ModelLock {
    fn unlocked() -> Self {
        Self {
            mutex: loom::sync::Mutex::new(()),
            held: std::cell::UnsafeCell::new(None),
            owner: AtomicUsize::new(0),
        }
    }
    fn lock(&self, context: usize) -> bool {
        if self.owner.load(Ordering::SeqCst) == context {
            return false;
        }
        self.keep(context, self.mutex.lock().unwrap());
        true
    }
    fn try_lock(&self, context: usize) -> bool {
        match self.mutex.try_lock() {
            Ok(guard) => {
                self.keep(context, guard);
                true
            }
            Err(_) => false,
        }
    }
    unsafe fn unlock(&self) {
        self.owner.store(0, Ordering::SeqCst);
        // SAFETY: held (caller).
        drop(unsafe { (*self.held.get()).take() });
    }
}

pub struct World {
    pub source: Source,
    slots: Slots,
    sheaves: std::cell::OnceCell<SheafPool<ModelHost>>,
    reports: std::sync::atomic::AtomicUsize,
}

#[derive(Clone, Copy)]
pub struct ModelHost(pub NonNull<World>);

// SAFETY: the world lives until the end of the execution, and shares only atomics and what they guard.
unsafe impl Send for ModelHost {}
// SAFETY: as above.
unsafe impl Sync for ModelHost {}

impl ModelHost {
    pub fn new() -> Self {
        let world = Box::new(World {
            source: Source::new(),
            slots: Slots::new(Here),
            sheaves: std::cell::OnceCell::new(),
            reports: AtomicUsize::new(0),
        });
        let host = Self(NonNull::from(Box::leak(world)));
        let _ = host.world().sheaves.set(SheafPool::new(host, 100, &SIZING));
        run_as(0, 1);
        host
    }

    pub fn world(&self) -> &World {
        // SAFETY: alive until `end`.
        unsafe { self.0.as_ref() }
    }

    /// Asserts that nothing is left and nothing was reported, and frees the world.
    pub fn end(self) {
        self.sheaves().slabs().shrink_slabs();
        assert_eq!(self.world().source.used(), 0, "pages are lost");
        assert_eq!(self.world().reports.load(Ordering::Relaxed), 0, "something was reported");
        // SAFETY: all model threads have been joined, and the caches are not used any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Host for ModelHost {
    type Source = Source;
    type Slots = Slots;
    type Lock = ModelLock;
    fn source(&self) -> &Self::Source {
        &self.world().source
    }
    fn slots(&self) -> &Slots {
        &self.world().slots
    }
    fn sheaves(&self) -> &SheafPool<Self> {
        self.world().sheaves.get().expect("made with the world")
    }
    fn context(&self) -> usize {
        CONTEXT.with(Cell::get)
    }
    fn corrupted(&self, what: fastpath_slub::Corruption, _: &'static str, object: *mut u8) {
        eprintln!("{what:?} {object:?}");
        self.world().reports.fetch_add(1, Ordering::Relaxed);
    }
}

/// A cache or slab layer for one execution.
pub struct Shared<T>(NonNull<T>);

// SAFETY: what is shared is itself `Sync`; the model frees it after all threads were joined.
unsafe impl<T: Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Shared<T> {}

impl<T> core::ops::Deref for Shared<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: alive until `end`.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Shared<T> {
    pub fn new(value: T) -> Self {
        Self(NonNull::from(Box::leak(Box::new(value))))
    }
    pub fn end(self) {
        // SAFETY: all model threads have been joined.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Explores `model` with a bound on preemptions; records and checks how many executions that were.
pub fn explore(
    name: &str,
    preemptions: Option<usize>,
    minimum: usize,
    model: impl Fn() + Sync + Send + 'static,
) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    COUNT.store(0, Ordering::SeqCst);
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions;
    builder.max_branches = 100_000;
    builder.check(move || {
        let count = COUNT.fetch_add(1, Ordering::SeqCst);
        if count % 5000 == 0 && std::env::var_os("LOOM_COUNT").is_some() {
            eprintln!("{count}");
        }
        model();
    });
    fastpath_testkit::explored(name, COUNT.load(Ordering::SeqCst), minimum);
}
