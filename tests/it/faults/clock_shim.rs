//! Not a part of this crate: a library that is preloaded into the program under test. It moves the wall clock
//! by the number of seconds in the file named by `CLOCK_SHIM_FILE`. Other clocks do not change.

use std::ffi::{c_char, c_int, c_long, c_void};

#[repr(C)]
pub struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn getenv(name: *const c_char) -> *const c_char;
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn read(file: c_int, buffer: *mut c_void, length: usize) -> isize;
    fn close(file: c_int) -> c_int;
}

#[cfg(target_arch = "x86_64")]
const CLOCK_GETTIME: c_long = 228;
#[cfg(target_arch = "aarch64")]
const CLOCK_GETTIME: c_long = 113;
const CLOCK_REALTIME: c_int = 0;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: c_int, at: *mut Timespec) -> c_int {
    unsafe {
        let result = syscall(CLOCK_GETTIME, c_long::from(clock), at);
        if result == 0 && clock == CLOCK_REALTIME {
            (*at).seconds += moved_by();
        }
        result as c_int
    }
}

unsafe fn moved_by() -> i64 {
    let mut text = [0_u8; 32];
    unsafe {
        let path = getenv(c"CLOCK_SHIM_FILE".as_ptr());
        if path.is_null() {
            return 0;
        }
        let file = open(path, 0);
        if file < 0 {
            return 0;
        }
        read(file, text.as_mut_ptr().cast(), text.len());
        close(file);
    }
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = std::str::from_utf8(&text[..end]).unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}
