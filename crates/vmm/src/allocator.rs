//! What glibc's allocator does behind the program's back, and may not under a system call filter.

use libc::c_int;

/// Makes the allocator leave alone what a filtered thread may not do.
///
/// Rule: no trimming, so that it never opens `/proc/sys/vm/overcommit_memory` to learn how
/// (glibc, malloc/arena.c, `shrink_heap`), and a fixed number of arenas, so that it never asks for the
/// number of CPUs (`arena_get2`). Freed memory stays with the process, as is usual where it is locked.
pub fn prepare() {
    /// As many as glibc has before it asks for the number of CPUs.
    const ARENAS: c_int = 8;
    const NEVER: c_int = -1;
    for (parameter, value) in [(libc::M_TRIM_THRESHOLD, NEVER), (libc::M_ARENA_MAX, ARENAS)] {
        // SAFETY: mallopt(3) takes two numbers, and reports a parameter that it does not know by 0. Without
        // an answer the allocator is as it was, and the filter stops what it then does.
        unsafe { libc::mallopt(parameter, value) };
    }
}
