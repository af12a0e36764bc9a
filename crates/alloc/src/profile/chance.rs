// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The arithmetic of sampling. Points lie on the stream of allocated bytes, on average one per interval, each place as
//! likely as any other; a block is sampled if a point falls into it. So a block of `size` bytes is sampled with the
//! probability `1 - exp(-size / interval)`, and stands for the reciprocal of that many blocks like it: the expected sum
//! is the true one, whatever the sizes are.

/// `1 - exp(-x)` for `x >= 0`.
pub(crate) fn falls(x: f64) -> f64 {
    if x > 40.0 {
        return 1.0;
    }
    // exp(-x) = exp(-x / 2^k) ^ (2^k), in the form q = 1 - exp: 1 - (1 - q)^2 = q (2 - q), which keeps small x exact.
    let (mut small, mut doublings) = (x, 0);
    while small > 0.25 {
        small *= 0.5;
        doublings += 1;
    }
    let (mut term, mut sum) = (small, small);
    for n in 2..14 {
        term *= -small / f64::from(n);
        sum += term;
    }
    for _ in 0..doublings {
        sum *= 2.0 - sum;
    }
    sum
}

/// The natural logarithm of a positive, normal number.
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let exponent = (bits >> 52) as i64 - 1023;
    let mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    // ln m = 2 artanh((m - 1) / (m + 1)), with m from 1 to 2: the ratio is at most a third.
    let ratio = (mantissa - 1.0) / (mantissa + 1.0);
    let (square, mut power, mut sum) = (ratio * ratio, ratio, 0.0);
    for n in 0..18 {
        sum += power / f64::from(2 * n + 1);
        power *= square;
    }
    exponent as f64 * core::f64::consts::LN_2 + 2.0 * sum
}

/// Bytes to the next point, from 64 random bits.
pub(crate) fn distance(random: u64, interval: u64) -> u64 {
    if interval <= 1 {
        return 0;
    }
    let unit = ((random >> 11) + 1) as f64 / (1u64 << 53) as f64;
    (-ln(unit) * interval as f64) as u64
}

/// How many blocks one sampled block of `size` bytes stands for, in 65536ths.
pub(crate) fn weight(size: u64, interval: u64) -> u64 {
    if interval <= 1 {
        return 1 << 16;
    }
    (65536.0 / falls(size as f64 / interval as f64) + 0.5) as u64
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;

    #[test]
    fn the_functions_are_those_of_the_textbook() {
        for x in [1e-9f64, 1e-4, 0.1, 0.25, 0.3, 1.0, 2.5, 10.0, 39.0, 50.0] {
            let wanted = -(-x).exp_m1();
            assert!((falls(x) - wanted).abs() <= 1e-12 * wanted, "{x}: {} {wanted}", falls(x));
        }
        for x in [1e-16f64, 0.001, 0.3, 0.999, 1.0, 1.5, 7.0] {
            let wanted = x.ln();
            assert!((ln(x) - wanted).abs() <= 1e-12 * wanted.abs().max(1.0), "{x}");
        }
    }

    #[test]
    fn sampled_blocks_stand_for_all_within_a_per_cent() {
        // A known stream: sizes from 16 bytes to 1 MiB, 4 million blocks.
        let interval = 64 * 1024;
        let mut random = 1u64;
        let mut next = || {
            random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        };
        let (mut blocks, mut bytes, mut true_blocks, mut true_bytes) = (0u64, 0u64, 0u64, 0u64);
        let mut left = distance(next(), interval) as i64;
        for _ in 0..4_000_000 {
            let size = 16 << (next() % 16).min(next() % 16).min(next() % 16);
            true_blocks += 1;
            true_bytes += size;
            left -= size as i64;
            if left < 0 {
                left = distance(next(), interval) as i64;
                blocks += weight(size, interval);
                bytes += (weight(size, interval) * size) >> 16;
            }
        }
        let off = |estimate: u64, truth: u64| (estimate as f64 / truth as f64 - 1.0).abs();
        assert!(off(bytes, true_bytes) < 0.01, "{bytes} of {true_bytes}");
        assert!(off(blocks >> 16, true_blocks) < 0.03, "{} of {true_blocks}", blocks >> 16);
    }
}
