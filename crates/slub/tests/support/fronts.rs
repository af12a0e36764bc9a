// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Every front end on every backend, behind one trait: for cases that ask the same of all.

use super::{AllStop, CPUS, Here, OneTask, SIZING, Slots, TestHost, leak, no_script};
use core::cell::Cell;
use core::ptr::NonNull;
use fastpath_slub::tid::backend::{IrqOff, Local, Locked};
use fastpath_slub::{Busy, Cache, CacheFlags, CacheSpec, FreePointer, Slabs, TidBackend, TidCache, Wait};

/// What the cases need of a front end.
pub trait Front {
    fn slabs(&self) -> &Slabs<TestHost>;
    fn get(&self, wait: Wait) -> Option<NonNull<u8>>;
    fn put(&self, object: NonNull<u8>, wait: Wait);
    fn put_bulk(&self, objects: &mut [*mut u8]);
    fn destroy(&self) -> Result<(), Busy>;
    /// An attribute's text, or the error's number.
    fn read(&self, name: &str) -> Result<String, i32>;
    fn write(&self, name: &str, value: &str) -> Result<(), i32>;

    fn alloc(&self) -> NonNull<u8> {
        self.get(Wait::Yes).expect("memory")
    }
    fn free(&self, object: NonNull<u8>) {
        self.put(object, Wait::Yes);
    }
}

impl Front for Slabs<TestHost> {
    fn slabs(&self) -> &Slabs<TestHost> {
        self
    }
    fn get(&self, wait: Wait) -> Option<NonNull<u8>> {
        self.alloc_one(0, wait)
    }
    fn put(&self, object: NonNull<u8>, wait: Wait) {
        // SAFETY: tests free what they allocated; what is freed wrongly is what they are about.
        unsafe { self.free_one(object, wait) }
    }
    fn put_bulk(&self, objects: &mut [*mut u8]) {
        // SAFETY: as above.
        unsafe { self.free_batch(objects, Wait::Yes) }
    }
    fn destroy(&self) -> Result<(), Busy> {
        self.destroy_slabs()
    }
    fn read(&self, _: &str) -> Result<String, i32> {
        unreachable!("attributes belong to front ends")
    }
    fn write(&self, _: &str, _: &str) -> Result<(), i32> {
        unreachable!("attributes belong to front ends")
    }
}

macro_rules! front {
    ([$($param:ident: $bound:path)?] $cache:ty) => {
        impl$(<$param: $bound>)? Front for $cache {
            fn slabs(&self) -> &Slabs<TestHost> {
                self.slabs()
            }
            fn get(&self, wait: Wait) -> Option<NonNull<u8>> {
                if wait == Wait::Yes { self.alloc() } else { self.alloc_nolock() }
            }
            fn put(&self, object: NonNull<u8>, wait: Wait) {
                // SAFETY: as above.
                unsafe { if wait == Wait::Yes { self.free(object) } else { self.free_nolock(object) } }
            }
            fn put_bulk(&self, objects: &mut [*mut u8]) {
                // SAFETY: as above.
                unsafe { self.free_bulk(objects) }
            }
            fn destroy(&self) -> Result<(), Busy> {
                self.destroy()
            }
            fn read(&self, name: &str) -> Result<String, i32> {
                let mut text = String::new();
                self.read_attribute(name, &mut text).map_err(|error| error.errno())?;
                Ok(text)
            }
            fn write(&self, name: &str, value: &str) -> Result<(), i32> {
                self.write_attribute(name, value).map_err(|error| error.errno())
            }
        }
    };
}
front!([] Cache<TestHost>);
front!([B: TidBackend] TidCache<TestHost, B, CPUS>);

type Make = fn(TestHost, CacheSpec) -> &'static dyn Front;

/// Gives objects back one by one.
pub fn free_all(cache: &dyn Front, objects: impl IntoIterator<Item = NonNull<u8>>) {
    for object in objects {
        cache.free(object);
    }
}

/// Makes caches of one front end in one world.
pub struct Maker {
    pub name: &'static str,
    pub host: TestHost,
    /// Links lie apart from the objects.
    pub apart: bool,
    make: Make,
    made: Cell<usize>,
}

impl Maker {
    pub fn make(&self, spec: CacheSpec) -> &'static dyn Front {
        // Each on a slot of its own: the last sixteen do not meet.
        let slot = self.made.get();
        self.made.set((slot + 1) % super::SLOTS);
        (self.make)(self.host, spec.slot(slot))
    }

    /// A cache named "test".
    pub fn cache(&self, size: usize, flags: CacheFlags) -> &'static dyn Front {
        self.make(CacheSpec::new("test", size).flags(flags))
    }
}

fn sheaf(host: TestHost, spec: CacheSpec) -> &'static dyn Front {
    leak(Cache::new(host, spec, &SIZING))
}

fn apart(spec: CacheSpec) -> CacheSpec {
    spec.free_pointer(FreePointer::Apart)
}

/// Runs a case on every front end there is, also with links apart from objects, and records it.
pub fn on_every_front(number: &str, test: impl Fn(&Maker)) {
    on_layer_and_fronts(number, true, test);
}

/// The same for what only front ends have.
pub fn on_every_front_end(number: &str, test: impl Fn(&Maker)) {
    on_layer_and_fronts(number, false, test);
}

fn on_layer_and_fronts(number: &str, layer: bool, test: impl Fn(&Maker)) {
    let made: [(&'static str, Make); 7] = [
        ("slabs", |host, spec| leak(Slabs::new(host, spec, &SIZING))),
        ("slabs", |host, spec| leak(Slabs::new(host, apart(spec), &SIZING))),
        ("sheaf-trylock", sheaf),
        ("sheaf-trylock", |host, spec| sheaf(host, apart(spec))),
        ("tid-locked", |host, spec| {
            let backend = Locked::<Here>::detect(Here).expect("a double-word exchange");
            leak(TidCache::<TestHost, _, CPUS>::new(host, backend, spec, &SIZING))
        }),
        ("tid-local", |host, spec| {
            let backend = Local::<Here, OneTask>::detect(Here, OneTask).expect("a double-word exchange");
            leak(TidCache::<TestHost, _, CPUS>::new(host, backend, spec, &SIZING))
        }),
        ("tid-irq_off", |host, spec| {
            leak(TidCache::<TestHost, _, CPUS>::new(host, IrqOff::<Here, AllStop>::new(Here), spec, &SIZING))
        }),
    ];
    for (index, (name, make)) in made.into_iter().enumerate().filter(|(_, made)| layer || made.0 != "slabs") {
        test(&Maker { name, host: TestHost::new(), apart: matches!(index, 1 | 3), make, made: Cell::new(0) });
        no_script();
        fastpath_testkit::case(number, name);
    }
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    match super::rseq::RseqSlots::new() {
        Some(slots) => {
            super::pin_for_real();
            let host = TestHost::on(Slots::Rseq(slots));
            test(&Maker { name: "sheaf-rseq", host, apart: false, make: sheaf, made: Cell::new(0) });
            no_script();
            fastpath_testkit::case(number, "sheaf-rseq");
        }
        None => fastpath_testkit::skip("slub-rseq", "the C library registers no thread for rseq"),
    }
}
