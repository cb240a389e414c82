//! Attributes: a length, a type and a payload, each padded to four bytes (`struct nlattr`).

/// Bytes before the payload: length and type.
const HEADER: usize = 4;
/// The bits of a type that are its number (`NLA_TYPE_MASK`); the others are flags.
const TYPE_MASK: u16 = 0x3fff;

/// Attributes under construction.
#[derive(Clone, Debug, Default)]
pub struct Builder(Vec<u8>);

impl Builder {
    /// Appends one attribute.
    pub fn bytes(mut self, kind: u16, payload: &[u8]) -> Self {
        // The length has 16 bits. No payload of ours is longer; if one were, the kernel would refuse the message.
        let length = u16::try_from(HEADER + payload.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(payload);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Appends a 32-bit number.
    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Appends a 64-bit number.
    pub fn u64(self, kind: u16, value: u64) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Appends text with a closing zero byte.
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut payload = value.as_bytes().to_vec();
        payload.push(0);
        self.bytes(kind, &payload)
    }

    /// Appends an attribute that contains others.
    pub fn nested(self, kind: u16, inner: Self) -> Self {
        self.bytes(kind, &inner.0)
    }

    /// The bytes of all attributes.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Received attributes. The list ends where the bytes do not hold another whole attribute.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// Payload of the last attribute of this type; the kernel's parser takes the last, too.
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.filter(|(k, _)| *k == kind)
            .last()
            .map(|(_, payload)| payload)
    }

    /// A payload as a 32-bit number.
    pub fn u32(self, kind: u16) -> Option<u32> {
        u32_at(self.get(kind)?, 0)
    }

    /// A payload as a 64-bit number.
    pub fn u64(self, kind: u16) -> Option<u64> {
        u64_at(self.get(kind)?, 0)
    }

    /// A payload as text, up to its closing zero byte.
    pub fn text(self, kind: u16) -> Option<String> {
        let payload = self.get(kind)?;
        let end = payload.iter().position(|&b| b == 0).unwrap_or(payload.len());
        Some(String::from_utf8_lossy(&payload[..end]).into_owned())
    }

    /// The attributes inside an attribute; none if it is absent.
    pub fn nested(self, kind: u16) -> Self {
        Self(self.get(kind).unwrap_or_default())
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(u16_at(self.0, 0)?);
        let kind = u16_at(self.0, 2)? & TYPE_MASK;
        let payload = self.0.get(HEADER..length)?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, payload))
    }
}

/// The number at byte `at`.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_ne_bytes(*b))
}

/// The number at byte `at`.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|b| u32::from_ne_bytes(*b))
}

/// The number at byte `at`.
pub(crate) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|b| i32::from_ne_bytes(*b))
}

/// The number at byte `at`.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|b| u64::from_ne_bytes(*b))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pads_to_four_bytes_and_reads_back() {
        let bytes = Builder::default()
            .text(1, "htb")
            .text(1, "cake")
            .u32(2, 7)
            .finish();
        assert_eq!(bytes.len(), 8 + 12 + 8);
        let read = Attributes(&bytes);
        assert_eq!(read.text(1).as_deref(), Some("cake"));
        assert_eq!(read.u32(2), Some(7));
        assert_eq!(read.u64(2), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(Attributes(&bytes).count() <= bytes.len() / HEADER);
        }
    }
}
