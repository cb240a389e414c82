//! Numbers as other programs write them, which no option takes: `0x4000`, `2e4`, `20 000`, `1_000`, `+80`.

/// Longer texts are no numbers. A choice.
const MAX_BYTES: usize = 40;
/// Largest power of ten that is written out: 1000 Tbit/s have no more zeros.
const MAX_EXPONENT: i32 = 15;
/// Signs that separate thousands: blanks of several widths, apostrophes, and what programming languages use.
const SEPARATORS: [char; 9] = [
    ' ', '\u{a0}', '\u{2009}', '\u{202f}', '\'', '\u{2019}', '_', ',', '.',
];

/// The text with the number at its beginning in plain decimal digits, and its unit as it is. `None` if it does not begin with a
/// number of such a form. One comma or point alone is a decimal one.
pub(crate) fn respelled(text: &str) -> Option<String> {
    let text = text.trim();
    if text.len() > MAX_BYTES {
        return None;
    }
    let unsigned = text
        .strip_prefix('+')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let bare = unsigned.unwrap_or(text);
    let found = hexadecimal(bare)
        .or_else(|| with_exponent(bare))
        .or_else(|| separated(bare));
    found.or_else(|| unsigned.map(str::to_owned))
}

/// `0x4000`. A unit needs a blank before it, because `b` is a digit.
fn hexadecimal(text: &str) -> Option<String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let (digits, unit) = digits.split_at(digits.find(' ').unwrap_or(digits.len()));
    if digits.starts_with('+') {
        return None;
    }
    let number = u64::from_str_radix(digits, 16).ok()?;
    Some(format!("{number}{unit}"))
}

/// `2e4`, `2.5E4 kbit`.
fn with_exponent(text: &str) -> Option<String> {
    let (number, rest) = text.split_once(['e', 'E'])?;
    let signed = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    let ends = signed.find(|c: char| !c.is_ascii_digit()).unwrap_or(signed.len());
    let (digits, unit) = signed.split_at(ends);
    let exponent = digits
        .parse::<i32>()
        .ok()
        .filter(|power| *power <= MAX_EXPONENT)?;
    let exponent = if rest.starts_with('-') {
        -exponent
    } else {
        exponent
    };
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(decimals) {
        return None;
    }
    let point = whole.len() as i32 + exponent;
    let digits = format!("{whole}{decimals}");
    let shifted = match usize::try_from(point) {
        Ok(0) | Err(_) => format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize)),
        Ok(point) if point >= digits.len() => digits.clone() + &"0".repeat(point - digits.len()),
        Ok(point) => format!("{}.{}", &digits[..point], &digits[point..]),
    };
    Some(shifted + unit)
}

/// `20 000`, `1_000_000`, `1.000.000 kbit`: groups of three digits, with one sign between all of them.
fn separated(text: &str) -> Option<String> {
    let separator = text.chars().find(|c| !c.is_ascii_digit())?;
    if !SEPARATORS.contains(&separator) {
        return None;
    }
    let mut rest = text;
    let mut number = String::new();
    let mut groups = 0;
    loop {
        let ends = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let group = &rest[..ends];
        let fits = match groups {
            0 => (1..=3).contains(&group.len()) && !group.starts_with('0'),
            _ => group.len() == 3,
        };
        if !fits {
            return None;
        }
        number.push_str(group);
        groups += 1;
        rest = &rest[ends..];
        match rest.strip_prefix(separator) {
            Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => rest = after,
            _ => break,
        }
    }
    let least = if [',', '.'].contains(&separator) { 3 } else { 2 };
    (groups >= least).then(|| number + rest)
}

#[cfg(test)]
mod tests {
    use super::respelled;

    #[test]
    fn a_number_is_written_out_and_its_unit_stays() {
        for (text, meant) in [
            ("0x4000", "16384"),
            ("0X10 kbit", "16 kbit"),
            ("2e4", "20000"),
            ("2E+4 kbit", "20000 kbit"),
            ("2.5e4kbit", "25000kbit"),
            ("1.25e1mbit", "12.5mbit"),
            ("5e-1mbit", "0.5mbit"),
            ("5e-3mbit", "0.005mbit"),
            ("20 000", "20000"),
            ("20 000 kbit", "20000 kbit"),
            ("20\u{202f}000\u{a0}kbit", "20000\u{a0}kbit"),
            ("1_000", "1000"),
            ("85'000 kbit", "85000 kbit"),
            ("1\u{2019}000\u{2019}000", "1000000"),
            ("1.000.000 kbit", "1000000 kbit"),
            ("1,000,000", "1000000"),
            ("+80mbit", "80mbit"),
            ("+1_000", "1000"),
        ] {
            assert_eq!(respelled(text).as_deref(), Some(meant), "{text}");
        }
        for text in [
            "",
            "80",
            "80 mbit",
            "80mbit",
            "1.000",
            "85,000",
            "0x",
            "0xg",
            "0x+4",
            "e4",
            "2e",
            "2e99",
            "1e",
            "1,5,0",
            "20 00",
            "2000 000",
            "0 500",
            "-5",
            "+-5",
            "++5",
            "1.2.3mbit",
        ] {
            assert_eq!(respelled(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_has_an_answer(text in "[-+0-9 xXeE.,'_a-f]{0,45}|.{0,20}") {
            let _ = respelled(&text);
        }
    }
}
