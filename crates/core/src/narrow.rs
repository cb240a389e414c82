//! Conversions to narrower numbers. The name says what happens to a number that does not fit.
//!
//! `fits_…` is for numbers that fit by construction: indices into a table, a value that was clamped before. Debug builds check it;
//! release builds convert without a check, as the kernel does. `low_…` is for arithmetic that takes the low bits on purpose.

/// A number below 2⁸.
#[inline(always)]
pub(crate) const fn fits_u8(n: u64) -> u8 {
    debug_assert!(n <= u8::MAX as u64, "it fits by construction");
    low_u8(n)
}

/// A number below 2¹⁶.
#[inline(always)]
pub(crate) const fn fits_u16(n: u64) -> u16 {
    debug_assert!(n <= u16::MAX as u64, "it fits by construction");
    low_u16(n)
}

/// A number below 2³².
#[inline(always)]
pub(crate) const fn fits_u32(n: u64) -> u32 {
    debug_assert!(n <= u32::MAX as u64, "it fits by construction");
    low_u32(n)
}

/// A number below 2⁶⁴.
#[inline(always)]
pub(crate) const fn fits_u64(n: u128) -> u64 {
    debug_assert!(n <= u64::MAX as u128, "it fits by construction");
    low_u64(n)
}

/// A number of things in memory.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a usize counts everything in memory, and debug builds check it"
)]
pub(crate) const fn fits_usize(n: u64) -> usize {
    debug_assert!(n <= usize::MAX as u64, "it fits by construction");
    n as usize
}

/// The lowest 8 bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(crate) const fn low_u8(n: u64) -> u8 {
    n as u8
}

/// The lowest 16 bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(crate) const fn low_u16(n: u64) -> u16 {
    n as u16
}

/// The lowest 32 bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(crate) const fn low_u32(n: u64) -> u32 {
    n as u32
}

/// The lowest 64 bits.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
pub(crate) const fn low_u64(n: u128) -> u64 {
    n as u64
}
