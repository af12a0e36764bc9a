// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What every critical section does, in pseudo-code: the architectures are ported against this file, line by line.
//!
//! A section runs on one slot: the one of the CPU (or concurrency id) its thread is on. Either all of it happens with
//! no other section on that slot in between, or none of it does: the kernel restarts it when its thread is preempted,
//! migrated or signalled, or another thread asks with a fence. Its last instruction is the one store that commits;
//! everything before is harmless to repeat.
//!
//! ```text
//! enter(base):                          enter_at(slot):
//!   rseq_cs = descriptor                  rseq_cs = descriptor
//!   if cpu_id < 0: NotRegistered          if cpu_id < 0: NotRegistered
//!   word = base + (id << SHIFT)           if id != slot: Moved
//! leave: rseq_cs = 0        abort: count it, start again from `enter`
//!
//! write(v)           word = v                                                                  1, 2, 4, 8 bytes
//! add(v)             word += v                                                                 1, 2, 4, 8 bytes
//! inc, dec           word += 1, word -= 1                                                      1, 2, 4, 8 bytes
//! and(v), or(v)      word &= v, word |= v                                                      1, 2, 4, 8 bytes
//! xadd(v)            old = word; word = old + v                                     -> old      1, 2, 4, 8 bytes
//! xchg(v)            old = word; word = v                                           -> old      1, 2, 4, 8 bytes
//! cmpxchg(e, v)      old = word; if old != e: Mismatch; word = v                    -> old      1, 2, 4, 8 bytes
//! guarded_add(g,e,v) if *g != e: Mismatch; word += v
//!
//! list_push(node)    h = word; if h == STOPPED: Mismatch; *node = h; word = node
//! list_pop           h = word; if h <= STOPPED: none; next = *h; word = next        -> h or 0
//! list_pop_all       h = word; if h <= STOPPED: none; word = 0                      -> h or 0
//!
//! stack_push(v)      n = word; if n >= C: Mismatch; word[n + 1] = v; word = n + 1
//! stack_pop          n = word; v = word[n]; if v == 0: none; word = n - 1           -> v or 0
//! stack_push_batch   n = word; if n > C: Mismatch; k = min(C - n, offered)
//!                    word[n + 1 .. n + k] = from; word = n + k                      -> k
//! stack_pop_batch    n = word; if n > C: Mismatch; k = min(n, wanted)
//!                    to = word[n - k + 1 .. n]; word = n - k                        -> k
//!
//! compare_store(slot, w, e, v)             if *w != e: Mismatch; *w = v
//! compare2_store(slot, w, e, w2, e2, v)    if *w != e: Mismatch; if *w2 != e2: Mismatch; *w = v
//! compare_store_store(slot, w, e, f, x, v) if *w != e: Mismatch; *f = x; *w = v                 (release)
//! compare_copy_store(slot, w, e, to, from, n, v)
//!                                          if *w != e: Mismatch; to[..n] = from[..n]; *w = v           (release)
//! compare_store_copy_store(slot, w, e, f, x, from, n, v)
//!                                          if *w != e: Mismatch; *f = x; (f + 1)[..n] = from; *w = v   (release)
//! ```
//!
//! `list_pop` and `stack_pop` give 0 also for "not registered": their callers look at the reason only when they got
//! nothing. C is the capacity; a stopped stack counts C + 1, and entry C + 1 is 0 for ever.
//!
//! | section | assembly blocks | used by |
//! |---|---|---|
//! | write, add, inc, dec, and, or, xadd, xchg, cmpxchg | 36 | [`PerCpu`](crate::PerCpu), [`Counter`](crate::Counter) |
//! | guarded_add | 1 | [`PerCpuRef`](crate::PerCpuRef) |
//! | list_* | 3 | [`List`](crate::List) |
//! | stack_* | 4 | [`Stack`](crate::Stack) |
//! | compare_* | 5 | [`RingBuffer`](crate::RingBuffer), [`SpinLock`](crate::SpinLock), and callers of their own |

/// The word that marks a list whose slot another thread has stopped. No node has this address.
pub const STOPPED: u64 = 1;

/// How a section ended.
///
/// "Aborted" is missing on purpose: an aborted section starts again by itself, at once and on whatever slot the thread
/// is then. [`aborts`](crate::aborts) counts them.
#[must_use = "a section that did not end with `Done` has changed nothing"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The store committed.
    Done,
    /// A comparison failed: nothing was stored.
    Mismatch,
    /// The thread is not on the slot the caller computed with: nothing was stored.
    Moved,
    /// The thread is not registered: nothing was stored.
    NotRegistered,
}
