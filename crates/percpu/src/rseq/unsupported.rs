// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! No sections: targets without a tested port, Miri (no assembly) and loom (no preemption inside a step).

use super::{Base, Outcome, Stride};

/// Are there sections for this target?
pub const AVAILABLE: bool = false;

/// What a section says that must not exist: that the thread is not registered, which sends its caller to full atomics.
fn unreachable() -> Outcome {
    debug_assert!(false, "a critical section was called on a target without any");
    Outcome::NotRegistered
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn write_8<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn add_8<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn and_8<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn or_8<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xadd_8<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xchg_8<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn cmpxchg_8<S: Stride>(_: Base, _: u64, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn write_16<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn add_16<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn and_16<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn or_16<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xadd_16<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xchg_16<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn cmpxchg_16<S: Stride>(_: Base, _: u64, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn write_32<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn add_32<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn and_32<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn or_32<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xadd_32<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xchg_32<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn cmpxchg_32<S: Stride>(_: Base, _: u64, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn write_64<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn add_64<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn and_64<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn or_64<S: Stride>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xadd_64<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn xchg_64<S: Stride>(_: Base, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn cmpxchg_64<S: Stride>(_: Base, _: u64, _: u64) -> (Outcome, u64) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn guarded_add_64<S: Stride>(_: Base, _: *const u64, _: u64, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn list_push<S: Stride>(_: Base, _: *mut u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn list_pop<S: Stride>(_: Base) -> u64 {
    0
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn list_pop_all<S: Stride>(_: Base) -> u64 {
    0
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn stack_pop<S: Stride>(_: Base) -> u64 {
    0
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn stack_push<S: Stride, const CAPACITY: usize>(_: Base, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn stack_pop_batch<S: Stride, const CAPACITY: usize>(_: Base, _: *mut u64, _: usize) -> (Outcome, usize) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn stack_push_batch<S: Stride, const CAPACITY: usize>(_: Base, _: *const u64, _: usize) -> (Outcome, usize) {
    (unreachable(), 0)
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn compare_store(_: u32, _: *mut u64, _: u64, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn compare2_store(_: u32, _: *mut u64, _: u64, _: *const u64, _: u64, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn compare_store_store(_: u32, _: *mut u64, _: u64, _: *mut u64, _: u64, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
#[expect(clippy::too_many_arguments, reason = "one register each")]
pub unsafe fn compare_store_copy_store(_: u32, _: *mut u64, _: u64, _: *mut u64, _: u64, _: *const u8, _: usize, _: u64) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn inc_8<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn dec_8<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn inc_16<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn dec_16<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn inc_32<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn dec_32<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn inc_64<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn dec_64<S: Stride>(_: Base) -> Outcome {
    unreachable()
}

/// Never called: [`AVAILABLE`] is false.
///
/// # Safety
///
/// None: it does nothing.
pub unsafe fn compare_copy_store(
    _: u32,
    _: *mut u64,
    _: u64,
    _: *mut u8,
    _: *const u8,
    _: usize,
    _: u64,
) -> Outcome {
    unreachable()
}

/// Nothing to test.
pub(crate) fn abort_probe(_: isize) -> Option<bool> {
    None
}
