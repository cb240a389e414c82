//! The names of queueing disciplines and classes.

use crate::narrow::low_u16;
use core::fmt;

/// A `tc` handle, `major:minor`, both hexadecimal: a qdisc is `1:` (minor 0), its classes `1:10`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    /// The qdisc's number.
    pub major: u16,
    /// The class within it; 0 is the qdisc itself.
    pub minor: u16,
}

impl Handle {
    /// `major:minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// From the kernel's 32 bits: major in the upper 16, minor in the lower.
    pub const fn from_bits(bits: u32) -> Self {
        Self::new(low_u16((bits >> 16) as u64), low_u16(bits as u64))
    }

    /// The kernel's 32 bits.
    pub const fn bits(self) -> u32 {
        (self.major as u32) << 16 | self.minor as u32
    }

    /// Reads `1:10` or `1:`. None for anything else; a bare number is ambiguous in `tc` and is none here.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        let number = |digits: &str| match digits {
            "" => Some(0),
            _ if digits.starts_with('+') => None,
            _ => u16::from_str_radix(digits, 16).ok(),
        };
        (!major.is_empty()).then_some(())?;
        Some(Self::new(number(major)?, number(minor)?))
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            0 => write!(f, "{:x}:", self.major),
            minor => write!(f, "{:x}:{minor:x}", self.major),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn handles_are_hexadecimal() {
        for (text, handle) in [("1:10", Handle::new(1, 0x10)), ("ffff:", Handle::new(0xffff, 0))] {
            assert_eq!(Handle::parse(text), Some(handle));
            assert_eq!(handle.to_string(), text);
            assert_eq!(Handle::from_bits(handle.bits()), handle);
        }
        for text in ["", ":", ":10", "1", "1:+2", "1:10000", "one:two", "1:2:3"] {
            assert_eq!(Handle::parse(text), None, "{text}");
        }
    }
}
