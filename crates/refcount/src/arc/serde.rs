// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The values of handles, serialised as the values alone: sharing is not preserved, as with `std`'s.

use serde_core::de::{Deserialize, Deserializer};
use serde_core::ser::{Serialize, Serializer};

use super::{Arc, UniqueArc};
use crate::allocator::ArcAllocator;

impl<T: ?Sized + Serialize, A: ArcAllocator> Serialize for Arc<T, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

impl<T: ?Sized + Serialize, A: ArcAllocator> Serialize for UniqueArc<T, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        T::serialize(self, serializer)
    }
}

#[cfg(feature = "alloc")]
impl<'de, T: ?Sized> Deserialize<'de> for Arc<T>
where
    alloc::boxed::Box<T>: Deserialize<'de>,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        alloc::boxed::Box::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(feature = "alloc")]
impl<'de, T: Deserialize<'de>> Deserialize<'de> for UniqueArc<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(Self::new)
    }
}
