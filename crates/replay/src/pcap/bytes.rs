//! Numbers in a file's byte order, and a reader that reports where the file ends.

use std::io::{self, Read};

use super::error::Error;

/// A file's byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Little,
    Big,
}

impl Order {
    pub(crate) const fn u16(self, bytes: [u8; 2]) -> u16 {
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    pub(crate) const fn u32(self, bytes: [u8; 4]) -> u32 {
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    pub(crate) const fn i64(self, bytes: [u8; 8]) -> i64 {
        match self {
            Self::Little => i64::from_le_bytes(bytes),
            Self::Big => i64::from_be_bytes(bytes),
        }
    }

    /// The 32 bits at `at` of a header that is longer than that.
    pub(crate) fn u32_at<const N: usize>(self, header: &[u8; N], at: usize) -> u32 {
        self.u32([header[at], header[at + 1], header[at + 2], header[at + 3]])
    }

    /// The 16 bits at `at` of a header that is longer than that.
    pub(crate) fn u16_at<const N: usize>(self, header: &[u8; N], at: usize) -> u16 {
        self.u16([header[at], header[at + 1]])
    }
}

/// A stream that counts the bytes that were read.
#[derive(Debug)]
pub(crate) struct Input<R> {
    stream: R,
    pub(crate) position: u64,
}

impl<R: Read> Input<R> {
    pub(crate) const fn new(stream: R) -> Self {
        Self { stream, position: 0 }
    }

    /// The next `N` bytes; `None` at the end of the file.
    pub(crate) fn array_or_end<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<Option<[u8; N]>, Error> {
        let mut array = [0; N];
        let mut filled = 0;
        while filled < N {
            match self.stream.read(&mut array[filled..]) {
                Ok(0) if filled == 0 => return Ok(None),
                Ok(0) => return Err(self.truncated(filled, what)),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.position += N as u64;
        Ok(Some(array))
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Error> {
        self.array_or_end(what)?.ok_or_else(|| self.truncated(0, what))
    }

    /// Replaces the content of `buffer` by the next `length` bytes. The buffer grows with the bytes that are read, so a false length does
    /// not allocate memory.
    pub(crate) fn fill(
        &mut self,
        buffer: &mut Vec<u8>,
        length: u32,
        what: &'static str,
    ) -> Result<(), Error> {
        buffer.clear();
        let count = self.stream.by_ref().take(length.into()).read_to_end(buffer)?;
        if count < length as usize {
            return Err(self.truncated(count, what));
        }
        self.position += u64::from(length);
        Ok(())
    }

    /// The error that the file ends `count` bytes after the current position.
    fn truncated(&self, count: usize, what: &'static str) -> Error {
        Error::Truncated {
            at: self.position + count as u64,
            what,
        }
    }
}
