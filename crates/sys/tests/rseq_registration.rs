// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who may register what: every refusal of the kernel, as the types name it.
#![expect(unsafe_code, reason = "registers areas with the kernel")]

use std::sync::atomic::Ordering;

use fastpath_sys::rseq::{self, Area, Libc, RegisterError, SIGNATURE, UNREGISTER};

fn fresh_area() -> Area {
    // SAFETY: integers only: zero is valid.
    unsafe { core::mem::zeroed() }
}

/// A longer area, as newer libcs register it, aligned as newer kernels want it.
#[repr(C, align(64))]
struct Long([u8; 64]);

/// Runs `body` in a thread of its own: registrations are per thread.
fn in_a_thread(body: impl FnOnce() + Send) {
    std::thread::scope(|scope| scope.spawn(body).join().expect("the thread finished"));
}

/// Ends libc's registration of this thread, if there is one, so that the thread can try its own. The area and its length.
fn without_libc() -> Option<(*mut Area, u32)> {
    let Libc::Registers { offset, published_size, .. } = rseq::libc() else { return None };
    let area = rseq::area_at(offset);
    let length = published_size.max(rseq::REGISTERED_SIZE);
    // SAFETY: this thread uses nothing of rseq until the end of its test.
    unsafe { rseq::unregister(area, length) }.expect("libc's own registration");
    Some((area, length))
}

#[test]
fn a_second_registration_is_refused() {
    let Libc::Registers { offset, published_size, .. } = rseq::libc() else {
        fastpath_testkit::skip("libc-owns-rseq", "libc has not registered this process's threads");
        return;
    };
    let length = published_size.max(rseq::REGISTERED_SIZE);
    let mine = rseq::area_at(offset);
    let mut other = Box::new(fresh_area());
    // SAFETY: refused calls change nothing, and both areas are valid.
    unsafe {
        for bytes in [20, 32, 64] {
            assert_eq!(rseq::register(&raw mut *other, bytes), Err(RegisterError::Invalid), "length {bytes}");
        }
        assert_eq!(rseq::register(mine, length), Err(RegisterError::AlreadyRegistered));
        assert_eq!(rseq::raw(mine, length, UNREGISTER, SIGNATURE ^ 1), Err(RegisterError::WrongSignature));
        assert_eq!(rseq::raw(mine, length + 32, UNREGISTER, SIGNATURE), Err(RegisterError::Invalid));
        assert_eq!(rseq::raw(&raw mut *other, length, UNREGISTER, SIGNATURE), Err(RegisterError::Invalid));
    }
    fastpath_testkit::case("R7", "libc");
}

#[test]
fn an_own_area_needs_length_and_alignment() {
    if !rseq::supported() {
        fastpath_testkit::skip("kernel-rseq", "the kernel has no rseq, or hides it");
        return;
    }
    in_a_thread(|| {
        let libc = without_libc();
        let mut area = Box::new(fresh_area());
        let area = &raw mut *area;
        // SAFETY: the area lives until it is unregistered below; refused calls change nothing.
        unsafe {
            assert_eq!(rseq::register(area, 20), Err(RegisterError::Invalid));
            assert_eq!(rseq::register(area.byte_add(16), 32), Err(RegisterError::Invalid), "misaligned");
            rseq::register(area, 32).expect("32 bytes");
            assert!(((*area).cpu_id.load(Ordering::Relaxed) as i32) >= 0);
            rseq::unregister(area, 32).expect("its own registration");
            assert_eq!((*area).cpu_id.load(Ordering::Relaxed) as i32, rseq::UNINITIALIZED);
            assert_eq!((*area).cpu_id_start.load(Ordering::Relaxed), 0);
        }
        let mut long = Box::new(Long([0; 64]));
        let long = (&raw mut *long).cast::<Area>();
        // SAFETY: as above.
        unsafe {
            rseq::register(long, 64).expect("64 bytes");
            rseq::unregister(long, 64).expect("its own registration");
            if let Some((area, length)) = libc {
                rseq::register(area, length).expect("libc's area again");
            }
        }
    });
    fastpath_testkit::case("R8", "own");
}

#[test]
fn the_kernel_refuses_its_own_addresses() {
    if !rseq::supported() {
        return;
    }
    in_a_thread(|| {
        let libc = without_libc();
        let kernel = core::ptr::without_provenance_mut::<Area>(0xffff_8000_0000_0000);
        // SAFETY: refused; nothing is written.
        let answer = unsafe { rseq::register(kernel, 32) };
        assert!(matches!(answer, Err(RegisterError::Fault | RegisterError::Invalid)), "{answer:?}");
        if let Some((area, length)) = libc {
            // SAFETY: libc's area, for libc.
            unsafe { rseq::register(area, length) }.expect("libc's area again");
        }
    });
}

#[test]
fn an_unregistered_thread_reads_a_negative_cpu() {
    in_a_thread(|| {
        let Some((area, length)) = without_libc() else { return };
        // SAFETY: libc's area of this thread.
        let (cpu, start) =
            unsafe { ((*area).cpu_id.load(Ordering::Relaxed), (*area).cpu_id_start.load(Ordering::Relaxed)) };
        assert!((cpu as i32) < 0, "a loop that waits for cpu_id == cpu_id_start would never end");
        assert_eq!(start, 0);
        // SAFETY: libc's area, for libc.
        unsafe { rseq::register(area, length) }.expect("libc's area again");
    });
}

#[test]
fn only_rseq_cs_is_ever_written() {
    let Libc::Registers { offset, .. } = rseq::libc() else { return };
    let area = rseq::area_at(offset);
    // SAFETY: this thread's area.
    unsafe {
        let before = (*area).flags.load(Ordering::Relaxed);
        (*area).rseq_cs.store(0, Ordering::Relaxed);
        assert_eq!((*area).flags.load(Ordering::Relaxed), before);
        assert!((*area).mm_cid.load(Ordering::Relaxed) < 8192);
    }
}

#[test]
fn the_active_size_follows_the_kernel_where_libc_rounds() {
    for (published, kernel, active) in [
        (32, 0, 20),
        (20, 0, 20),
        (32, 28, 28),
        (20, 28, 28),
        (32, 33, 32),
        (20, 64, 32),
        (33, 33, 33),
        (28, 28, 28),
        (0, 28, 0),
    ] {
        assert_eq!(rseq::active_size(published, kernel), active, "published {published}, kernel {kernel}");
    }
}
