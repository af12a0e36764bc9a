// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a processor lacks at one width only: from `generic` with its own interrupt flag, from eight bytes, or not at all.

/// The eight-byte local forms of `$backend`, interrupts off.
#[allow(unused_macros, reason = "only some targets lack a width")]
macro_rules! local_u64_by_interrupts {
    ($backend:ty) => {
        // SAFETY: the local forms of `generic` keep the same contract.
        unsafe impl $crate::contract::LocalOps<u64> for $backend {
            #[inline(always)]
            unsafe fn cmpxchg_local(ptr: *mut u64, old: u64, new: u64) -> u64 {
                // SAFETY: the caller's guarantee is the same.
                unsafe {
                    <$crate::arch::Generic<$crate::interrupt::Interrupts> as $crate::contract::LocalOps<
                        u64,
                    >>::cmpxchg_local(ptr, old, new)
                }
            }
        }
    };
}

/// The local pair form of `$backend`, interrupts off.
#[allow(unused_macros, reason = "only some targets lack a width")]
macro_rules! local_double_by_interrupts {
    ($backend:ty) => {
        // SAFETY: the local form of `generic` keeps the same contract.
        unsafe impl $crate::contract::LocalDoubleOps for $backend {
            fn available_local() -> bool {
                true
            }
            #[inline(always)]
            unsafe fn cmpxchg_double_local(
                ptr: *mut $crate::Pair,
                old: $crate::Pair,
                new: $crate::Pair,
            ) -> $crate::Pair {
                // SAFETY: the caller's guarantee is the same.
                unsafe {
                    $crate::arch::Generic::<$crate::interrupt::Interrupts>::cmpxchg_double_local(
                        ptr, old, new,
                    )
                }
            }
        }
    };
}

/// The pair forms of a 32-bit `$backend` that has full eight-byte forms.
#[allow(unused_macros, reason = "only for 32-bit targets")]
macro_rules! double_by_u64 {
    ($backend:ty) => {
        // SAFETY: a pair is eight aligned bytes; the full form on `u64` is one step for all processors. The conversions
        // keep the bytes in memory order, whatever the endianness.
        unsafe impl $crate::contract::DoubleOps for $backend {
            fn available() -> bool {
                true
            }
            #[inline(always)]
            unsafe fn cmpxchg_double(
                ptr: *mut $crate::Pair,
                old: $crate::Pair,
                new: $crate::Pair,
                order: $crate::Ordering,
            ) -> $crate::Pair {
                // SAFETY: two 32-bit words and eight bytes have the same bytes.
                let wide = |pair: $crate::Pair| unsafe { core::mem::transmute::<$crate::Pair, u64>(pair) };
                // ORDERING: the caller's.
                // SAFETY: the caller's guarantee; aligned to 8 by the type.
                let previous = unsafe {
                    <Self as $crate::contract::Ops<u64>>::cmpxchg(ptr.cast(), wide(old), wide(new), order)
                };
                // SAFETY: two 32-bit words and eight bytes have the same bytes.
                unsafe { core::mem::transmute::<u64, $crate::Pair>(previous) }
            }
        }

        // SAFETY: what no processor can divide, no handler of this processor can.
        unsafe impl $crate::contract::LocalDoubleOps for $backend {
            fn available_local() -> bool {
                true
            }
            #[inline(always)]
            unsafe fn cmpxchg_double_local(
                ptr: *mut $crate::Pair,
                old: $crate::Pair,
                new: $crate::Pair,
            ) -> $crate::Pair {
                use $crate::contract::DoubleOps;
                // ORDERING: Relaxed: a local form orders nothing for other processors.
                // SAFETY: the caller's guarantee includes that of the full form.
                unsafe { Self::cmpxchg_double(ptr, old, new, $crate::Ordering::Relaxed) }
            }
        }
    };
}

/// The full pair form of a `$backend` whose processors have none: never available, so never called.
#[allow(unused_macros, reason = "only some targets lack a width")]
macro_rules! no_full_double {
    ($backend:ty) => {
        // SAFETY: `available` never says that the form works.
        unsafe impl $crate::contract::DoubleOps for $backend {
            fn available() -> bool {
                false
            }
            #[inline(always)]
            unsafe fn cmpxchg_double(
                _ptr: *mut $crate::Pair,
                _old: $crate::Pair,
                _new: $crate::Pair,
                _order: $crate::Ordering,
            ) -> $crate::Pair {
                // SAFETY: the caller guarantees that `available` has returned true, which it never does.
                unsafe { core::hint::unreachable_unchecked() }
            }
        }
    };
}

/// The local pair form of a `$backend` that has none here.
#[allow(unused_macros, reason = "only some targets lack a width")]
macro_rules! no_local_double {
    ($backend:ty) => {
        // SAFETY: `available_local` never says that the form works.
        unsafe impl $crate::contract::LocalDoubleOps for $backend {
            fn available_local() -> bool {
                false
            }
            #[inline(always)]
            unsafe fn cmpxchg_double_local(
                _ptr: *mut $crate::Pair,
                _old: $crate::Pair,
                _new: $crate::Pair,
            ) -> $crate::Pair {
                // SAFETY: the caller guarantees that `available_local` has returned true, which it never does.
                unsafe { core::hint::unreachable_unchecked() }
            }
        }
    };
}
