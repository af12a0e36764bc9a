// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! How {list head, tid} of a slot change together.
#![expect(unsafe_code, reason = "TidBackend is an unsafe trait: the front end hands out objects by its word")]

/// The pair of a slot and the operations on it.
///
/// # Safety
///
/// * `exchange` is one atomic step with respect to all other operations on the cell: it writes both words of `new` and
///   returns `true` exactly when both words of `old` were there. If it needs to run on `cpu` to be atomic, it does
///   nothing and returns `false` elsewhere.
/// * `tid` is at least an Acquire read and `head` at least a Relaxed one that is not moved before an earlier `tid`;
///   a successful `exchange` is at least Release (and Acquire where other CPUs reach the cell).
pub unsafe trait TidBackend: Sync {
    /// The cell.
    type Cell: Sync;

    /// A cell {NULL, 0}.
    #[cfg(not(loom))]
    const CELL: Self::Cell;

    /// A cell {NULL, 0} (loom's atomics have no constants).
    #[cfg(loom)]
    fn cell() -> Self::Cell;

    /// Whether a task can be moved to another CPU, or another can run on its CPU, between two steps.
    const PREEMPTIBLE: bool = true;

    /// Held during slow paths; keeps the task on its CPU where `exchange` depends on that.
    type Pin;

    /// The CPU this runs on; a hint where `exchange` works from anywhere.
    fn cpu(&self) -> usize;

    /// Keeps the task on its CPU.
    fn pin(&self) -> Self::Pin;

    /// Whether `exchange` on the cell of `cpu` can succeed from here, pinned.
    fn reaches(&self, cpu: usize) -> bool {
        cpu == self.cpu()
    }

    /// The tid.
    fn tid(&self, cell: &Self::Cell) -> usize;

    /// The list head.
    fn head(&self, cell: &Self::Cell) -> *mut u8;

    /// Replaces `old` by `new`.
    fn exchange(&self, cpu: usize, cell: &Self::Cell, old: (*mut u8, usize), new: (*mut u8, usize)) -> bool;
}
