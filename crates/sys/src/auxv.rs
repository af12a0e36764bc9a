// SPDX-FileCopyrightText: The fastpath developers
// SPDX-License-Identifier: MIT OR Apache-2.0

//! The auxiliary vector: what the kernel told this process at its start.

use core::ffi::c_ulong;

use crate::arch;

/// `AT_RSEQ_FEATURE_SIZE`: bytes of `struct rseq` that the kernel fills in. Since Linux 6.3.
pub const AT_RSEQ_FEATURE_SIZE: c_ulong = 27;
/// `AT_RSEQ_ALIGN`: the alignment an area longer than 32 bytes needs. Since Linux 6.3.
pub const AT_RSEQ_ALIGN: c_ulong = 28;
/// `AT_HWCAP`: the processor's features, as the architecture defines them.
pub const AT_HWCAP: c_ulong = 16;
/// `AT_PAGESZ`: bytes in a page.
pub const AT_PAGESZ: c_ulong = 6;

const PR_GET_AUXV: usize = 0x4155_5856;

/// The value of one entry; `None` when the kernel gave none.
///
/// Asks libc's `getauxval` if there is one, else the kernel (`PR_GET_AUXV`, since Linux 6.4: every kernel on which
/// the two rseq entries and a process without libc matter together, except 6.3). Neither allocates.
///
/// ```
/// use fastpath_sys::auxv;
/// assert!(auxv::value(auxv::AT_PAGESZ).is_some_and(|bytes| bytes >= 4096));
/// assert_eq!(auxv::value(4711), None);
/// ```
#[doc(alias = "getauxval")]
pub fn value(kind: c_ulong) -> Option<usize> {
    let found = arch::symbol!("getauxval");
    if !found.is_null() {
        // SAFETY: the only symbol of this name is libc's, with this signature on glibc, musl and bionic alike.
        let getauxval = unsafe { core::mem::transmute::<*mut core::ffi::c_void, GetAuxVal>(found) };
        // SAFETY: getauxval only reads the vector. A missing entry and one of value 0 both give 0 here: none of the
        // entries we ask for has a meaning of its own for 0.
        let value = unsafe { getauxval(kind) };
        return (value != 0).then_some(value as usize);
    }
    ask_kernel(kind)
}

type GetAuxVal = unsafe extern "C" fn(c_ulong) -> c_ulong;

fn ask_kernel(kind: c_ulong) -> Option<usize> {
    let mut vector = [[0_usize; 2]; 64];
    let bytes = size_of_val(&vector);
    // SAFETY: the kernel writes at most `bytes` bytes to `vector`; arguments 4 and 5 must be 0.
    let written = unsafe {
        arch::syscall6(arch::NR_PRCTL, [PR_GET_AUXV, vector.as_mut_ptr() as usize, bytes, 0, 0, 0])
    };
    crate::result(written).ok()?;
    vector
        .iter()
        .take_while(|entry| entry[0] != 0)
        .find(|entry| entry[0] == kind as usize)
        .map(|entry| entry[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_libc_agree() {
        let Some(page) = ask_kernel(AT_PAGESZ) else { return };
        assert_eq!(value(AT_PAGESZ), Some(page));
        assert_eq!(value(AT_RSEQ_FEATURE_SIZE), ask_kernel(AT_RSEQ_FEATURE_SIZE));
        assert_eq!(ask_kernel(4711), None);
    }
}
