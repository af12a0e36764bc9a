// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Free lists in an order that is hard to guess ([`CacheFlags::RANDOM`](crate::CacheFlags::RANDOM)).

/// A small generator for orders (`SplitMix64` by Steele, Lea and Flood, 2014). Not for cryptography; it takes no lock, so
/// that it can be used where nothing may wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle(u64);

impl Shuffle {
    /// A generator whose sequence depends on `seed` alone.
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Calls `visit` with each of `0..count` once, in an order that depends on `random`: a full cycle over the next power
/// of two, so that it needs no memory for a permutation. Numbers beyond `count` (a short slab) are left out.
#[doc(alias = "shuffle_freelist")]
pub(crate) fn for_each_shuffled(count: u32, random: &mut Shuffle, mut visit: impl FnMut(u32)) {
    if count == 0 {
        return;
    }
    let mask = count.next_power_of_two() - 1;
    // A linear congruential step visits all residues modulo a power of two if the multiplier is 1 modulo 4 and the
    // increment is odd (Hull and Dobell, 1962).
    let multiplier = ((random.next() as u32) & mask & !3) | 1;
    let increment = random.next() as u32 | 1;
    let scramble = random.next() as u32 & mask;
    let mut state = random.next() as u32 & mask;
    for _ in 0..=mask {
        let index = state ^ scramble;
        if index < count {
            visit(index);
        }
        state = state.wrapping_mul(multiplier).wrapping_add(increment) & mask;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    fn order(count: u32, seed: u64) -> Vec<u32> {
        let mut order = Vec::new();
        for_each_shuffled(count, &mut Shuffle::new(seed), |index| order.push(index));
        order
    }

    #[test]
    fn every_order_is_a_permutation() {
        for count in [1, 2, 3, 7, 8, 42, 64, 170, 512] {
            for seed in 0..50 {
                let mut order = order(count, seed);
                order.sort_unstable();
                assert!(order.iter().copied().eq(0..count), "{count} objects, seed {seed}");
            }
        }
    }

    #[test]
    fn orders_differ_and_are_rarely_the_plain_one() {
        assert_ne!(order(64, 1), order(64, 2));
        let plain = (0..200).filter(|&seed| order(64, seed).iter().copied().eq(0..64)).count();
        assert!(plain <= 2, "{plain} of 200 orders are the plain one");
    }
}
