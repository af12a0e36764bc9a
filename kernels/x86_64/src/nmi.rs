// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What interrupts-off does not survive and one instruction does: K12 with a non-maskable interrupt.

use crate::apic;
use core::fmt::Write;
use fastpath_cmpxchg::backend::Generic;
use fastpath_cmpxchg::interrupt::{InterruptControl, Interrupts, Step};
use fastpath_cmpxchg::{Atomic, LocalOps, Native, Ordering};
use kernel_harness::Machine;

/// The word that both sides change.
static WORD: Atomic<u32> = Atomic::new(0);
static TAKEN: Atomic<u32> = Atomic::new(0);
static ENOUGH: Atomic<bool> = Atomic::new(false);

/// How many NMIs there were.
pub fn taken() -> u32 {
    TAKEN.load(Ordering::Relaxed)
}

#[unsafe(no_mangle)]
extern "C" fn kernel_nmi() {
    // SAFETY: the first processor and its handlers are the only users of the word.
    unsafe { WORD.inc_local() };
    // SAFETY: as above.
    unsafe { TAKEN.inc_local() };
}

/// The processor's flag, with an NMI between the read and the write of each operation.
struct NmiAfterRead;

// SAFETY: what the processor's own control promises; NMIs are its documented exception.
unsafe impl InterruptControl for NmiAfterRead {
    type State = <Interrupts as InterruptControl>::State;
    const EXCLUDES_OTHER_PROCESSORS: bool = false;
    fn disable() -> Self::State {
        Interrupts::disable()
    }
    unsafe fn restore(state: Self::State) {
        // SAFETY: the caller's guarantee is the same.
        unsafe { Interrupts::restore(state) };
    }
    fn step(step: Step) {
        if step == Step::Read {
            apic::nmi_to_self();
        }
    }
}

struct Console<M>(core::marker::PhantomData<M>);
impl<M: Machine> Write for Console<M> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        M::write(text);
        Ok(())
    }
}

/// Both demonstrations; each panics if it does not come out as described.
pub fn extra<M: Machine>() {
    let mut console = Console::<M>(core::marker::PhantomData);
    // `generic`: ten increments by the code, ten by the NMIs that came between read and write, and those are lost.
    WORD.store(0, Ordering::Relaxed);
    TAKEN.store(0, Ordering::Relaxed);
    for _ in 0..10 {
        // SAFETY: this processor and its handler are the only users of the word.
        unsafe { <Generic<NmiAfterRead> as LocalOps<u32>>::fetch_add_local(WORD.as_ptr(), 1) };
    }
    let (word, nmis) = (WORD.load(Ordering::Relaxed), taken());
    assert_eq!((word, nmis), (10, 10), "generic loses exactly the updates of the NMIs");
    let _ = writeln!(
        console,
        "extra ok 1 - interrupts off: {nmis} NMIs between read and write, {nmis} updates lost"
    );

    // One instruction: another processor sends NMIs while the first counts; nothing is lost.
    WORD.store(0, Ordering::Relaxed);
    TAKEN.store(0, Ordering::Relaxed);
    ENOUGH.store(false, Ordering::SeqCst);
    static MINE: Atomic<u32> = Atomic::new(0);
    static FIRST: Atomic<u32> = Atomic::new(0);
    MINE.store(0, Ordering::Relaxed);
    FIRST.store(0, Ordering::SeqCst);
    M::everywhere(|| {
        if apic_number() == 0 {
            let mut mine = 0_u32;
            while taken() < 200 {
                // SAFETY: the first processor and its handlers are the only users of the word.
                unsafe {
                    for _ in 0..10 {
                        <Native as LocalOps<u32>>::add_local(WORD.as_ptr(), 1);
                        <Native as LocalOps<u32>>::fetch_add_local(WORD.as_ptr(), 1);
                        let mut old = <Native as LocalOps<u32>>::load_local(WORD.as_ptr());
                        loop {
                            let found = <Native as LocalOps<u32>>::cmpxchg_local(
                                WORD.as_ptr(),
                                old,
                                old.wrapping_add(1),
                            );
                            if found == old {
                                break;
                            }
                            old = found;
                        }
                    }
                }
                mine = mine.wrapping_add(30);
            }
            MINE.store(mine, Ordering::Relaxed);
            ENOUGH.store(true, Ordering::SeqCst);
        } else if FIRST.fetch_add(1, Ordering::SeqCst) == 0 {
            // One of the others is the source.
            while !ENOUGH.load(Ordering::SeqCst) {
                apic::nmi_to_first();
                for _ in 0..2000 {
                    core::hint::spin_loop();
                }
            }
        }
    });
    // One more may be on its way: it has been taken when the counts stand still.
    let mut nmis = taken();
    loop {
        for _ in 0..1_000_000 {
            core::hint::spin_loop();
        }
        if taken() == nmis {
            break;
        }
        nmis = taken();
    }
    assert_eq!(WORD.load(Ordering::Relaxed), MINE.load(Ordering::Relaxed).wrapping_add(nmis));
    let _ = writeln!(console, "extra ok 2 - one instruction without LOCK: {nmis} NMIs, no update lost");
}

/// This processor's number in its APIC.
fn apic_number() -> u32 {
    core::arch::x86_64::__cpuid(1).ebx >> 24
}
