// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! How `generic` keeps interrupts away: the trait it is given, and this target's own interrupt flag.
//!
//! On a bare-metal target (`target_os = "none"`) of ARM, AArch64, RISC-V or x86, `Interrupts` is the processor's own flag.
//! With the feature `critical-section`, `CriticalSection` asks the implementation that the final binary links.
//!
//! # What interrupts-off does not keep away
//!
//! **Non-maskable interrupts and machine checks** (NMI and #MC on x86, FIQ on ARM as long as only IRQ is masked, NMI and
//! HardFault on Cortex-M, resumable NMIs on RISC-V) arrive in between all the same. Data shared with such a handler must
//! not use `generic`; a one-instruction local form, as on x86, is safe there.

/// What may happen between the steps of a `generic` operation. Real controllers ignore it; models interrupt there.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing is done yet; interrupts are as the caller had them.
    Before,
    /// Interrupts are off; nothing is read yet.
    Disabled,
    /// The word is read; nothing is written yet.
    Read,
    /// The new value, if any, is written; interrupts are still off.
    Written,
    /// Interrupts are again as the caller had them.
    After,
}

/// A way to keep the other code of this processor away for a moment.
///
/// # Safety
///
/// From the return of `disable` to the call of the matching `restore`, no interrupt handler and no other thread runs on
/// this processor, except non-maskable ones, and the two are compiler barriers: no memory access of the caller moves
/// across them. Pairs nest: `restore` leaves interrupts off if they were off before its `disable`.
///
/// If `EXCLUDES_OTHER_PROCESSORS` is true, no other processor runs code between a `disable` and `restore` of its own at
/// the same time: there is only one processor, or the implementation takes a lock for all of them.
///
/// # Example
///
/// ```
/// use fastpath_cmpxchg::{Atomic, Ordering, backend::Generic, interrupt::InterruptControl};
///
/// /// A program without interrupts, without signal handlers and with one thread.
/// struct Alone;
/// // SAFETY: there is nobody to keep away.
/// unsafe impl InterruptControl for Alone {
///     type State = ();
///     const EXCLUDES_OTHER_PROCESSORS: bool = true;
///     fn disable() {}
///     unsafe fn restore((): ()) {}
/// }
/// let word = Atomic::<u32, Generic<Alone>>::new_in(1);
/// assert_eq!(word.fetch_add(1, Ordering::Relaxed), 1);
/// ```
pub unsafe trait InterruptControl: 'static {
    /// What `disable` found: interrupts on or off.
    type State: Copy;
    /// Whether the section also excludes code on other processors. Only then do the full forms compile.
    const EXCLUDES_OTHER_PROCESSORS: bool;
    /// Turns interrupts off; returns how they were.
    fn disable() -> Self::State;
    /// Puts interrupts back to `state`.
    ///
    /// # Safety
    /// `state` comes from the latest `disable` that is not yet restored, on this processor.
    unsafe fn restore(state: Self::State);
    /// A point between two steps of an operation: a model may interrupt here.
    #[doc(hidden)]
    #[inline(always)]
    fn step(_step: Step) {}
}

/// Whether one processor is all there is, as far as this crate can know: ARM before v6 has no exclusive access and is
/// never multi-processor; for everything else the final binary says so with `--cfg fastpath_assume_single_core`.
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "only the bare-metal controllers ask"))]
pub(crate) const SINGLE_PROCESSOR: bool = cfg!(any(fastpath_assume_single_core, fastpath_arm = "pre_v6"));

#[cfg(feature = "critical-section")]
mod critical_section;
#[cfg(feature = "critical-section")]
pub use self::critical_section::CriticalSection;

#[cfg(all(target_os = "none", target_arch = "aarch64"))]
mod aarch64;
#[cfg(all(target_os = "none", target_arch = "aarch64"))]
pub use self::aarch64::Interrupts;

#[cfg(all(target_os = "none", target_arch = "arm", fastpath_arm = "m"))]
mod cortex_m;
#[cfg(all(target_os = "none", target_arch = "arm", fastpath_arm = "m"))]
pub use self::cortex_m::Interrupts;

#[cfg(all(target_os = "none", target_arch = "arm", not(fastpath_arm = "m")))]
mod arm;
#[cfg(all(target_os = "none", target_arch = "arm", not(fastpath_arm = "m")))]
pub use self::arm::Interrupts;

#[cfg(all(target_os = "none", any(target_arch = "riscv32", target_arch = "riscv64")))]
mod riscv;
#[cfg(all(target_os = "none", any(target_arch = "riscv32", target_arch = "riscv64")))]
pub use self::riscv::{Interrupts, SupervisorInterrupts};

#[cfg(all(target_os = "none", any(target_arch = "x86", target_arch = "x86_64")))]
mod x86;
#[cfg(all(target_os = "none", any(target_arch = "x86", target_arch = "x86_64")))]
pub use self::x86::Interrupts;
