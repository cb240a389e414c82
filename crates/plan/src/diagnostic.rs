//! What is wrong with a configuration file, and where: one finding per value, all findings of a file together.

use std::fmt;

/// One finding, printed as `file:line: option 'name': message; did you mean 'suggestion'?`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file's name as it was given.
    pub file: String,
    /// Line in that file, from 1.
    pub line: usize,
    /// The option it is about; `None` if it is about a section or the file's form.
    pub option: Option<String>,
    /// What is wrong, and what to do where that is not plain.
    pub message: String,
    /// The value (or name) that was probably meant in place of the one found.
    pub suggestion: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.file, self.line)?;
        if let Some(option) = &self.option {
            write!(f, "option '{option}': ")?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, "; did you mean '{suggestion}'?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// A finding before it is known how much it weighs.
#[derive(Debug)]
pub(crate) struct Finding {
    line: usize,
    option: Option<String>,
    message: String,
    suggestion: Option<String>,
}

impl Finding {
    pub(crate) fn at(line: usize, message: impl Into<String>) -> Self {
        Self {
            line,
            option: None,
            message: message.into(),
            suggestion: None,
        }
    }

    pub(crate) fn option(self, name: impl Into<String>) -> Self {
        Self {
            option: Some(name.into()),
            ..self
        }
    }

    pub(crate) fn suggest(self, suggestion: Option<impl Into<String>>) -> Self {
        Self {
            suggestion: suggestion.map(Into::into),
            ..self
        }
    }
}

/// Collects the findings of one file.
#[derive(Debug)]
pub(crate) struct Report {
    file: String,
    /// The section being read is switched off: what is wrong with it harms nobody yet, and what it would ignore is
    /// of no interest.
    pub(crate) disabled: bool,
    pub(crate) errors: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
}

impl Report {
    pub(crate) fn new(file: &str) -> Self {
        Self {
            file: file.to_owned(),
            disabled: false,
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Said once, however often a reader comes by: an option for both directions is read for each.
    pub(crate) fn error(&mut self, finding: Finding) {
        let mut diagnostic = self.diagnostic(finding);
        let said = if self.disabled {
            diagnostic.message.push_str(" (the section is disabled)");
            &mut self.warnings
        } else {
            &mut self.errors
        };
        if !said.contains(&diagnostic) {
            said.push(diagnostic);
        }
    }

    pub(crate) fn warning(&mut self, finding: Finding) {
        if !self.disabled {
            let diagnostic = self.diagnostic(finding);
            self.warnings.push(diagnostic);
        }
    }

    fn diagnostic(&self, finding: Finding) -> Diagnostic {
        let Finding {
            line,
            option,
            message,
            suggestion,
        } = finding;
        Diagnostic {
            file: self.file.clone(),
            line,
            option,
            message,
            suggestion,
        }
    }
}
