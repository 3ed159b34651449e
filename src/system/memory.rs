//! Returns freed memory to the system. A look at a large node takes tens of megabytes for a moment, and that
//! node is short of memory. Works with glibc's allocator only.

/// Makes glibc keep one arena and map large blocks separately. Call it before any thread starts.
///
/// With one arena per thread, threads cannot reuse each other's freed memory. With glibc's dynamic threshold,
/// a list's 16 MiB end up on the heap and are never returned. Figures: `docs/dev/performance.md`.
pub fn settle() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::settle();
}

/// Returns free memory if there is much of it. Call it after something large was dropped; takes some milliseconds.
///
/// Little free memory stays: the next look needs it again, and getting it back from the kernel page by page costs
/// a scrape a tenth of its processor time. Figures: `docs/dev/performance.md`.
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
    /// glibc's initial value, fixed.
    const MMAP_FROM_BYTES: libc::c_int = 128 << 10;

    /// Below this much free memory, what is free stays with the process.
    const WORTH_BYTES: libc::c_int = 1 << 20;

    pub(super) fn settle() {
        // SAFETY: mallopt only stores the number; a refusal leaves the default.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, MMAP_FROM_BYTES);
        }
    }

    pub(super) fn give_back() {
        // SAFETY: both read and touch free memory only, under the allocator's own lock.
        unsafe {
            // Negative: 2 GiB and more.
            if !(0..WORTH_BYTES).contains(&libc::mallinfo().fordblks) {
                libc::malloc_trim(0);
            }
        }
    }
}
