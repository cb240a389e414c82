//! Text as manual pages need it.

use std::fmt::Write as _;

/// A manual page that is being written.
pub(super) struct Page(String);

impl Page {
    pub(super) fn new(name: &str, section: u8) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        Self(format!(
            ".TH {} {section} \"\" \"sqm {version}\" \"Smart Queue Management\"\n",
            escape(name)
        ))
    }

    pub(super) fn finish(self) -> String {
        self.0
    }

    pub(super) fn section(&mut self, title: &str) {
        self.line(&format!(".SH \"{}\"", escape(&title.to_uppercase())));
    }

    /// A heading within a section.
    pub(super) fn subsection(&mut self, title: &str) {
        self.line(&format!(".SS \"{}\"", escape(title)));
    }

    /// A paragraph. Its lines are filled, and empty lines begin further paragraphs.
    pub(super) fn paragraph(&mut self, text: &str) {
        self.line(".PP");
        self.filled(text, ".PP");
    }

    /// A term in bold, and its description indented below it.
    pub(super) fn entry(&mut self, term: &str, text: &str) {
        self.line(".TP");
        self.line(term);
        self.filled(text, ".sp");
    }

    /// Lines that are printed as they are.
    pub(super) fn verbatim<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        self.line(".PP");
        self.line(".RS 4");
        self.line(".EX");
        for line in lines {
            self.line(&first_column(&escape(line)));
        }
        self.line(".EE");
        self.line(".RE");
    }

    /// A line of roff.
    pub(super) fn line(&mut self, line: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn filled(&mut self, text: &str, between: &str) {
        for line in text.lines() {
            match line.trim() {
                "" => self.line(between),
                text => self.line(&first_column(&escape(text))),
            }
        }
    }
}

/// Text in bold. Ends in the font of the text around it.
pub(super) fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", escape(text))
}

/// Text in italics, for a value that the user gives.
pub(super) fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", escape(text))
}

/// Escapes the characters that roff would take as its own, or print as typographic ones that cannot be copied into a
/// shell.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\(rs"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            '"' => escaped.push_str("\\(dq"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// Keeps roff from reading a line of text as a request.
fn first_column(line: &str) -> String {
    match line.starts_with('.') {
        true => format!("\\&{line}"),
        false => line.to_owned(),
    }
}
