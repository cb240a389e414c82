//! Arithmetic in a text: whole numbers, `+ - * /`, parentheses, `min` and `max`, as in `$((max(UPLINK / 3, 1)))`.

use sqm_core::units::shortened;

use crate::own::near;

/// Deepest nesting of parentheses, a choice that keeps the reader's stack small.
const DEEPEST: usize = 32;

/// An error, and the name that was probably meant.
pub(super) type Wrong = (String, Option<String>);

/// Computes an expression. `number_of` answers the number of a name, or `None` for an unknown one; `names` are all known names.
pub(super) fn compute(
    text: &str,
    names: &[&'static str],
    number_of: &dyn Fn(&str) -> Option<Result<i64, Wrong>>,
) -> Result<i64, Wrong> {
    let mut reader = Reader {
        rest: text,
        depth: 0,
        names,
        number_of,
    };
    let value = reader.sum()?;
    match reader.peek() {
        None => Ok(value),
        Some(c) => Err((format!("'{c}' is not expected in an expression"), None)),
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: usize,
    names: &'a [&'static str],
    number_of: &'a dyn Fn(&str) -> Option<Result<i64, Wrong>>,
}

impl<'a> Reader<'a> {
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.rest = &self.rest[wanted.len_utf8()..];
        }
        is_there
    }

    fn sum(&mut self) -> Result<i64, Wrong> {
        let mut value = self.product()?;
        loop {
            value = if self.take('+') {
                value.checked_add(self.product()?)
            } else if self.take('-') {
                value.checked_sub(self.product()?)
            } else {
                return Ok(value);
            }
            .ok_or_else(too_large)?;
        }
    }

    fn product(&mut self) -> Result<i64, Wrong> {
        let mut value = self.operand()?;
        loop {
            value = if self.take('*') {
                value.checked_mul(self.operand()?)
            } else if self.take('/') {
                match self.operand()? {
                    0 => return Err(("division by zero".to_owned(), None)),
                    divisor => value.checked_div(divisor),
                }
            } else {
                return Ok(value);
            }
            .ok_or_else(too_large)?;
        }
    }

    fn operand(&mut self) -> Result<i64, Wrong> {
        if self.take('(') {
            return self.inside();
        }
        let c = self.peek();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (braced, start) = match c {
            Some('$') => match self.rest.strip_prefix("${") {
                Some(rest) => (true, rest),
                None => (false, &self.rest[1..]),
            },
            _ => (false, self.rest),
        };
        let length = start.find(|c| !is_name(c)).unwrap_or(start.len());
        let (name, rest) = start.split_at(length);
        if name.is_empty() {
            let message = match c {
                Some(c) => format!("'{c}' stands where a number or a name is expected"),
                None => "the expression ends where a number or a name is expected".to_owned(),
            };
            return Err((message, None));
        }
        self.rest = match (braced, rest.strip_prefix('}')) {
            (false, _) => rest,
            (true, Some(rest)) => rest,
            (true, None) => return Err((format!("'${{{name}' is not closed by '}}'"), None)),
        };
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            let number = name.parse().ok();
            return number.ok_or_else(|| (format!("'{}' is not a whole number", shortened(name)), None));
        }
        if ["min", "max"].contains(&name) {
            return self.of_two(name);
        }
        (self.number_of)(name).unwrap_or_else(|| {
            let meant = near(name, self.names).or_else(|| near(name, &["min", "max"]));
            let message = format!("'{}' is not a number that an expression knows", shortened(name));
            Err((message, meant.map(str::to_owned)))
        })
    }

    fn of_two(&mut self, name: &str) -> Result<i64, Wrong> {
        let wrong = || (format!("'{name}' takes two numbers: {name}(UPLINK, 1)"), None);
        if !self.take('(') {
            return Err(wrong());
        }
        self.deeper()?;
        let first = self.sum()?;
        if !self.take(',') {
            return Err(wrong());
        }
        let second = self.sum()?;
        if !self.take(')') {
            return Err(wrong());
        }
        self.depth -= 1;
        Ok(if name == "min" {
            first.min(second)
        } else {
            first.max(second)
        })
    }

    fn inside(&mut self) -> Result<i64, Wrong> {
        self.deeper()?;
        let value = self.sum()?;
        self.depth -= 1;
        match self.take(')') {
            true => Ok(value),
            false => Err(("a parenthesis is not closed".to_owned(), None)),
        }
    }

    fn deeper(&mut self) -> Result<(), Wrong> {
        self.depth += 1;
        match self.depth > DEEPEST {
            true => Err((format!("more than {DEEPEST} parentheses within each other"), None)),
            false => Ok(()),
        }
    }
}

fn too_large() -> Wrong {
    ("the number is too large".to_owned(), None)
}
