//! DSCPs by name on the command line.

/// Parses a DSCP by number or by name (RFC 2474, 2597, 3246, 8622).
pub(crate) fn parse_dscp(text: &str) -> Result<u8, String> {
    let lower = text.to_ascii_lowercase();
    let digits = |prefix: &str| lower.strip_prefix(prefix).map(str::as_bytes);
    let value = match lower.as_str() {
        "be" | "df" => Some(0),
        "le" => Some(1),
        "ef" => Some(46),
        number => number.parse().ok().filter(|n| *n < 64),
    };
    value
        .or_else(|| match digits("cs")? {
            [class @ b'0'..=b'7'] => Some((class - b'0') * 8),
            _ => None,
        })
        .or_else(|| match digits("af")? {
            [class @ b'1'..=b'4', drop @ b'1'..=b'3'] => Some((class - b'0') * 8 + (drop - b'0') * 2),
            _ => None,
        })
        .ok_or_else(|| {
            format!("'{text}' is not a DSCP; write 0 to 63, be, le, ef, cs0 to cs7, or af11 to af43")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_points_have_names() {
        for (text, value) in [
            ("0", 0),
            ("EF", 46),
            ("cs1", 8),
            ("cs5", 40),
            ("af41", 34),
            ("af13", 14),
            ("63", 63),
        ] {
            assert_eq!(parse_dscp(text), Ok(value));
        }
        for wrong in ["64", "cs8", "af44", "af1", "", "x"] {
            assert!(parse_dscp(wrong).is_err(), "{wrong}");
        }
    }
}
