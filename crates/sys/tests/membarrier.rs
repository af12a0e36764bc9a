// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rseq fences before and after registration. One test: registration is for the whole process and for ever.

use fastpath_sys::{Errno, membarrier};

#[test]
fn rseq_fences_need_registration_and_known_flags() {
    if !membarrier::has_rseq() {
        fastpath_testkit::skip("membarrier-rseq", "the kernel has no rseq fences");
        return;
    }
    assert_eq!(membarrier::rseq_all(), Err(Errno::PERM));
    assert_eq!(membarrier::rseq_cpu(0), Err(Errno::PERM));
    membarrier::register_rseq().expect("registration");
    membarrier::register_rseq().expect("once more is harmless");
    membarrier::rseq_all().expect("registered");
    membarrier::rseq_cpu(0).expect("registered");
    membarrier::rseq_cpu(4000).expect("a CPU that does not exist runs nothing of ours");
    assert_eq!(membarrier::raw(128, 1, -1), Ok(0));
    assert_eq!(membarrier::raw(128, 2, 0), Err(Errno::INVAL), "an unknown flag");
    assert_eq!(membarrier::expedited(), Err(Errno::PERM), "another registration");
    membarrier::register_expedited().expect("registration");
    membarrier::expedited().expect("registered");
    if let Ok(bits) = membarrier::registrations() {
        assert_eq!(bits & 0x100, 0x100);
    }
    fastpath_testkit::case("R4", "kernel");
}
