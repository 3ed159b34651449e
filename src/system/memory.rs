//! Returns memory to the system: what is free, and the program's code that is not in use. A look at a large node takes
//! tens of megabytes for a moment, and that node is short of memory. Works with glibc only.

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

/// Unmaps the pages of the program's code and constants: what is used again comes back from the page cache. Call it
/// rarely: a scrape that must map all of its code anew takes 1.4 times as long.
pub fn let_go_of_code() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::let_go_of_code();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "glibc's settings and the program's segments can be reached no other way"
)]
mod glibc {
    use std::{ptr, slice};

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

    pub(super) fn let_go_of_code() {
        // SAFETY: `segments` keeps nothing of what it is given.
        unsafe {
            libc::dl_iterate_phdr(Some(segments), ptr::null_mut());
        }
    }

    /// Unmaps the pages of one loaded file's segments that are never written: the kernel reads them anew from the file.
    unsafe extern "C" fn segments(
        object: *mut libc::dl_phdr_info,
        _size: libc::size_t,
        _data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: glibc gives a valid object, whose headers stay where they are while it is loaded.
        let (base, headers) = unsafe {
            let object = &*object;
            let count = usize::from(object.dlpi_phnum);
            (
                object.dlpi_addr,
                slice::from_raw_parts(object.dlpi_phdr, count),
            )
        };
        let is_never_written =
            |it: &&libc::Elf64_Phdr| it.p_type == libc::PT_LOAD && it.p_flags & libc::PF_W == 0;
        for header in headers.iter().filter(is_never_written) {
            let first = base + header.p_vaddr;
            let of_page = first % rustix::param::page_size() as u64;
            let (Ok(start), Ok(bytes)) = (
                usize::try_from(first - of_page),
                usize::try_from(header.p_memsz + of_page),
            ) else {
                continue;
            };
            let start = ptr::with_exposed_provenance_mut(start);
            // SAFETY: pages of a segment that nothing writes to, so the file has all of their bytes. A refusal leaves
            // them as they are.
            unsafe {
                libc::madvise(start, bytes, libc::MADV_DONTNEED);
            }
        }
        0
    }
}
