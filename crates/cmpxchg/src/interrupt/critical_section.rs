// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Interrupts off by the `critical-section` implementation that the final binary links.

use super::InterruptControl;

/// The critical section of the `critical-section` crate; excludes other processors too, by that crate's contract.
#[derive(Debug, Clone, Copy)]
pub struct CriticalSection;

// SAFETY: `critical_section::acquire` promises that no other section runs on any processor until the matching `release`,
// that sections nest, and that both are barriers. The state is passed back unchanged, innermost first.
unsafe impl InterruptControl for CriticalSection {
    type State = critical_section::RestoreState;
    const EXCLUDES_OTHER_PROCESSORS: bool = true;

    #[inline(always)]
    fn disable() -> Self::State {
        // SAFETY: every `disable` of ours is followed by its `restore` before the operation returns.
        unsafe { critical_section::acquire() }
    }

    #[inline(always)]
    unsafe fn restore(state: Self::State) {
        // SAFETY: the caller passes the state of the matching `disable`, innermost first.
        unsafe { critical_section::release(state) }
    }
}
