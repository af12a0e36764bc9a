// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Formatting, comparison, hashing and borrowing of the handles: all that of the value.

use core::borrow::Borrow;
use core::cmp::Ordering;
use core::error::Error;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::{Arc, ArcBorrow, UniqueArc};
use crate::allocator::ArcAllocator;

/// The traits that just look through the handle at the value.
macro_rules! through_the_handle {
    ($(impl[$($lifetime:lifetime)?] $handle:ty;)*) => {$(
        impl<$($lifetime,)? T: ?Sized + fmt::Debug, A: ArcAllocator> fmt::Debug for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                T::fmt(self, f)
            }
        }

        impl<$($lifetime,)? T: ?Sized + fmt::Display, A: ArcAllocator> fmt::Display for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                T::fmt(self, f)
            }
        }

        impl<$($lifetime,)? T: ?Sized, A: ArcAllocator> fmt::Pointer for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let value: &T = self;
                fmt::Pointer::fmt(&core::ptr::from_ref(value), f)
            }
        }

        impl<$($lifetime,)? T: ?Sized + PartialEq, A: ArcAllocator> PartialEq for $handle {
            fn eq(&self, other: &Self) -> bool {
                T::eq(self, other)
            }
        }

        impl<$($lifetime,)? T: ?Sized + Eq, A: ArcAllocator> Eq for $handle {}

        impl<$($lifetime,)? T: ?Sized + PartialOrd, A: ArcAllocator> PartialOrd for $handle {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                T::partial_cmp(self, other)
            }
        }

        impl<$($lifetime,)? T: ?Sized + Ord, A: ArcAllocator> Ord for $handle {
            fn cmp(&self, other: &Self) -> Ordering {
                T::cmp(self, other)
            }
        }

        impl<$($lifetime,)? T: ?Sized + Hash, A: ArcAllocator> Hash for $handle {
            fn hash<H: Hasher>(&self, state: &mut H) {
                T::hash(self, state);
            }
        }

        impl<$($lifetime,)? T: ?Sized, A: ArcAllocator> AsRef<T> for $handle {
            fn as_ref(&self) -> &T {
                self
            }
        }

        impl<$($lifetime,)? T: ?Sized, A: ArcAllocator> Borrow<T> for $handle {
            fn borrow(&self) -> &T {
                self
            }
        }
    )*};
}

through_the_handle! {
    impl[] Arc<T, A>;
    impl[] UniqueArc<T, A>;
    impl['a] ArcBorrow<'a, T, A>;
    impl[] crate::weak::Arc<T, A>;
}

impl<T: ?Sized, A: ArcAllocator> AsMut<T> for UniqueArc<T, A> {
    fn as_mut(&mut self) -> &mut T {
        self
    }
}

impl<T: ?Sized + Error, A: ArcAllocator> Error for Arc<T, A> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        T::source(self)
    }
}
