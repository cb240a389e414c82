//! A configuration's text, parsed once. It is planned as often as needed, for other devices or at other rates.

use std::fmt;
use std::path::Path;

use sqm_kernel::netlink::link::Link;
use sqm_kernel::stack;
use sqm_plan::diagnostic::Diagnostic;
use sqm_plan::own::OwnFile;
use sqm_plan::settings::{Script, Settings};
use sqm_plan::{Configuration, Loaded, RateOverrides};

use crate::own_script;

/// A text and the configuration that it holds.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    text: Vec<u8>,
    configuration: Configuration,
}

/// All errors of a configuration's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub Vec<Diagnostic>);

impl Parsed {
    /// Parses a text. `file` is for the messages, and says where the texts are that `option script` may name.
    ///
    /// # Errors
    /// The text is not in UCI's format. Other errors are found by [`Parsed::plan`], all of them together.
    pub fn of(text: Vec<u8>, file: &Path) -> Result<Self, Invalid> {
        let source = |name: &str| own_script::read(name, file);
        let configuration =
            Configuration::parse_with(&text, &file.display().to_string(), &source).map_err(Invalid)?;
        Ok(Self { text, configuration })
    }

    /// The text.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// True if it is what `text` holds now. The texts that `option script` names may have changed while the configuration has not.
    pub fn holds(&self, text: &[u8], file: &Path) -> bool {
        let is_unchanged =
            |own: &OwnFile, name: &str| own_script::read(name, file).is_ok_and(|now| now == *own);
        self.text == text
            && self.sections().iter().all(|settings| {
                let own = [&settings.egress, &settings.ingress].map(|direction| match &direction.script {
                    Script::Own(own) => is_unchanged(&own.text.file, &own.text.name),
                    _ => true,
                });
                own == [true, true]
            })
    }

    /// The settings of all sections that could be read, enabled or not.
    pub fn sections(&self) -> &[Settings] {
        self.configuration.sections()
    }

    /// Plans each enabled section for the devices `links`, at the rates of `rates` in place of those of the text.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn plan(&self, links: &[Link], rates: &RateOverrides) -> Result<Loaded, Invalid> {
        let device_of = |name: &str| stack::device(links, name);
        self.configuration.plan(&device_of, rates).map_err(Invalid)
    }

    /// Plans each enabled section at the rates of the text.
    ///
    /// # Errors
    /// All errors of the text.
    pub fn plan_as_written(&self, links: &[Link]) -> Result<Loaded, Invalid> {
        self.plan(links, &RateOverrides::new())
    }
}

/// Parses a text and plans it at its own rates.
///
/// # Errors
/// All errors of the text.
pub fn parse_and_plan(text: Vec<u8>, file: &Path, links: &[Link]) -> Result<(Parsed, Loaded), Invalid> {
    let parsed = Parsed::of(text, file)?;
    let loaded = parsed.plan_as_written(links)?;
    Ok((parsed, loaded))
}

/// One line of text for each error.
impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, error) in self.0.iter().enumerate() {
            let line_end = if n == 0 { "" } else { "\n" };
            write!(f, "{line_end}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}

impl Invalid {
    /// The errors in words, one text for each.
    pub fn messages(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    /// Prints all errors on standard error.
    pub fn print(&self) {
        self.0.iter().for_each(|error| errln!("error: {error}"));
    }
}
