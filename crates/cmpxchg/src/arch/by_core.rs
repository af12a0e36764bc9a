// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two macros that give a backend its forms from `core::sync::atomic`.

/// The full forms of `$backend`, for each width that `core` has on this target.
macro_rules! full_by_core {
    ($backend:ty) => {
        full_by_core!($backend, u8, AtomicU8, "8");
        full_by_core!($backend, u16, AtomicU16, "16");
        full_by_core!($backend, u32, AtomicU32, "32");
        full_by_core!($backend, u64, AtomicU64, "64");
    };
    ($backend:ty, $word:ty, $atomic:ident, $width:literal) => {
        // SAFETY: `core`'s atomics are indivisible for all processors and do what the pseudo-code says; the order is
        // passed on unchanged for what writes, strengthened where a load or store cannot have it, and Relaxed for a
        // failed compare.
        #[cfg(target_has_atomic = $width)]
        unsafe impl $crate::contract::Ops<$word> for $backend {
            #[inline(always)]
            unsafe fn load(ptr: *const $word, order: $crate::Ordering) -> $word {
                // ORDERING: the caller's.
                // SAFETY: the caller's guarantee about `ptr` is the one `from_ptr` asks for.
                unsafe { core::sync::atomic::$atomic::from_ptr(ptr.cast_mut()) }
                    .load($crate::contract::load_order(order))
            }
            #[inline(always)]
            unsafe fn store(ptr: *mut $word, new: $word, order: $crate::Ordering) {
                // ORDERING: the caller's.
                // SAFETY: as in `load`.
                unsafe { core::sync::atomic::$atomic::from_ptr(ptr) }
                    .store(new, $crate::contract::store_order(order));
            }
            #[inline(always)]
            unsafe fn xchg(ptr: *mut $word, new: $word, order: $crate::Ordering) -> $word {
                // ORDERING: the caller's.
                // SAFETY: as in `load`.
                unsafe { core::sync::atomic::$atomic::from_ptr(ptr) }.swap(new, order)
            }
            #[inline(always)]
            unsafe fn cmpxchg(ptr: *mut $word, old: $word, new: $word, order: $crate::Ordering) -> $word {
                // ORDERING: the caller's if it writes; a failed compare publishes and receives nothing: Relaxed.
                // SAFETY: as in `load`.
                let atomic = unsafe { core::sync::atomic::$atomic::from_ptr(ptr) };
                match atomic.compare_exchange(old, new, order, $crate::Ordering::Relaxed) {
                    Ok(previous) | Err(previous) => previous,
                }
            }
            #[inline(always)]
            unsafe fn fetch_add(ptr: *mut $word, value: $word, order: $crate::Ordering) -> $word {
                // ORDERING: the caller's.
                // SAFETY: as in `load`.
                unsafe { core::sync::atomic::$atomic::from_ptr(ptr) }.fetch_add(value, order)
            }
            #[inline(always)]
            unsafe fn fetch_and(ptr: *mut $word, value: $word, order: $crate::Ordering) -> $word {
                // ORDERING: the caller's.
                // SAFETY: as in `load`.
                unsafe { core::sync::atomic::$atomic::from_ptr(ptr) }.fetch_and(value, order)
            }
            #[inline(always)]
            unsafe fn fetch_or(ptr: *mut $word, value: $word, order: $crate::Ordering) -> $word {
                // ORDERING: the caller's.
                // SAFETY: as in `load`.
                unsafe { core::sync::atomic::$atomic::from_ptr(ptr) }.fetch_or(value, order)
            }
            #[inline(always)]
            unsafe fn fetch_xor(ptr: *mut $word, value: $word, order: $crate::Ordering) -> $word {
                // ORDERING: the caller's.
                // SAFETY: as in `load`.
                unsafe { core::sync::atomic::$atomic::from_ptr(ptr) }.fetch_xor(value, order)
            }
        }
    };
}

/// The local forms of `$backend` as relaxed full ones: indivisible for all processors, so for one too.
macro_rules! local_by_relaxed {
    ($backend:ty) => {
        local_by_relaxed!($backend, u8, "8");
        local_by_relaxed!($backend, u16, "16");
        local_by_relaxed!($backend, u32, "32");
        local_by_relaxed!($backend, u64, "64");
    };
    ($backend:ty, $word:ty, $width:literal) => {
        // SAFETY: what no processor can divide, no handler of this processor can.
        #[cfg(target_has_atomic = $width)]
        unsafe impl $crate::contract::LocalOps<$word> for $backend {
            #[inline(always)]
            unsafe fn load_local(ptr: *mut $word) -> $word {
                // ORDERING: Relaxed here and below: a local form orders nothing for other processors.
                // SAFETY: the caller's guarantee includes that of the full form, here and below.
                unsafe { <Self as $crate::contract::Ops<$word>>::load(ptr, $crate::Ordering::Relaxed) }
            }
            #[inline(always)]
            unsafe fn xchg_local(ptr: *mut $word, new: $word) -> $word {
                // SAFETY: see `load_local`.
                unsafe { <Self as $crate::contract::Ops<$word>>::xchg(ptr, new, $crate::Ordering::Relaxed) }
            }
            #[inline(always)]
            unsafe fn cmpxchg_local(ptr: *mut $word, old: $word, new: $word) -> $word {
                // SAFETY: see `load_local`.
                unsafe {
                    <Self as $crate::contract::Ops<$word>>::cmpxchg(ptr, old, new, $crate::Ordering::Relaxed)
                }
            }
            #[inline(always)]
            unsafe fn fetch_add_local(ptr: *mut $word, value: $word) -> $word {
                // SAFETY: see `load_local`.
                unsafe {
                    <Self as $crate::contract::Ops<$word>>::fetch_add(ptr, value, $crate::Ordering::Relaxed)
                }
            }
            #[inline(always)]
            unsafe fn fetch_and_local(ptr: *mut $word, value: $word) -> $word {
                // SAFETY: see `load_local`.
                unsafe {
                    <Self as $crate::contract::Ops<$word>>::fetch_and(ptr, value, $crate::Ordering::Relaxed)
                }
            }
            #[inline(always)]
            unsafe fn fetch_or_local(ptr: *mut $word, value: $word) -> $word {
                // SAFETY: see `load_local`.
                unsafe {
                    <Self as $crate::contract::Ops<$word>>::fetch_or(ptr, value, $crate::Ordering::Relaxed)
                }
            }
            #[inline(always)]
            unsafe fn fetch_xor_local(ptr: *mut $word, value: $word) -> $word {
                // SAFETY: see `load_local`.
                unsafe {
                    <Self as $crate::contract::Ops<$word>>::fetch_xor(ptr, value, $crate::Ordering::Relaxed)
                }
            }
        }
    };
}
