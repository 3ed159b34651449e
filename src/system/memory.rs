//! Keeps what was freed from staying with the process. A look at a large node is tens of megabytes
//! for a moment; the node that it is about is short of memory. Does nothing where the allocator is
//! not glibc's.

/// Tells glibc to keep one arena and to map large blocks apart. Call it before any thread starts.
///
/// With an arena for each thread what one thread freed is of no use to the others, and with the
/// threshold that glibc moves by itself a list's 16 MiB end up on the heap, where they are never given
/// back. Figures: `docs/dev/performance.md`.
pub fn settle() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::settle();
}

/// Gives back what is free. Call it after something large was dropped; takes some milliseconds.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::give_back();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "glibc's settings can be reached no other way; the calls take numbers only"
)]
mod glibc {
    /// glibc's own start value, but fixed.
    const MMAP_FROM_BYTES: libc::c_int = 128 << 10;

    pub(super) fn settle() {
        // SAFETY: mallopt only stores the number; a refusal leaves the default.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_FROM_BYTES);
        }
    }

    pub(super) fn give_back() {
        // SAFETY: malloc_trim touches free memory only, under the allocator's own lock.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}
