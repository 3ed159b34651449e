//! A reader or writer that fails past a number of bytes.

use std::io::{self, Read, Write};

/// Lets at most a number of bytes pass.
#[derive(Debug)]
pub(super) struct Limited<T> {
    inner: T,
    left: u64,
    most: u64,
    what: &'static str,
}

impl<T> Limited<T> {
    /// `what` is named in the error.
    pub(super) fn new(inner: T, most: u64, what: &'static str) -> Self {
        Self {
            inner,
            left: most,
            most,
            what,
        }
    }

    pub(super) fn into_inner(self) -> T {
        self.inner
    }

    fn pass(&mut self, bytes: usize) -> io::Result<()> {
        let left = self.left.checked_sub(bytes as u64);
        let error =
            || io::Error::other(format!("{} is longer than {} bytes", self.what, self.most));
        self.left = left.ok_or_else(error)?;
        Ok(())
    }
}

impl<T: Read> Read for Limited<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.inner.read(into)?;
        self.pass(bytes)?;
        Ok(bytes)
    }
}

impl<T: Write> Write for Limited<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.pass(written)?;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
