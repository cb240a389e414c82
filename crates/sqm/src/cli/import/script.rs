//! Setup scripts of sqm-scripts (`mine.qos`) as texts of `tc` commands (`mine.tc`).

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde::Serialize;
use sqm_plan::import::script::Carried;
#[cfg(feature = "full")]
use sqm_plan::import::script::carry_over;
use sqm_plan::import::{Reader, Remark, Source};
use sqm_plan::own::{ENDING, FOLDERS};
use sqm_plan::settings::Script;
use sqm_process::failure::Failure;

/// The suffix of a setup script's name.
pub(super) const SHELL: &str = ".qos";
/// The permissions of a new text: every user may read it, as the configuration.
const MODE: u32 = 0o644;

/// A script that was carried over.
pub(super) struct Text {
    /// The name for `option script`.
    name: String,
    carried: Carried,
}

/// The form of a text in JSON.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    script: &'a str,
    text: &'a str,
    differences: Vec<String>,
}

/// The program for routers does not have the reader of shell scripts, to save flash.
#[cfg(not(feature = "full"))]
fn carry_over(_: &Source<'_>) -> Result<Carried, Vec<Remark>> {
    Err(vec![super::about(
        "this program, which was built for routers, does not read setup scripts: run the full program, which the package \
         sqm-web has as sqm-web and another machine as sqm"
            .to_owned(),
    )])
}

impl Text {
    /// Carries a script over, or says all that is against it.
    pub(super) fn of(file: &Path) -> Result<Self, Vec<Remark>> {
        let text = super::text_of(file)?;
        let shown = file.display().to_string();
        let source = Source {
            name: &shown,
            text: &text,
            reader: Reader::Shell,
        };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let stem = name.strip_suffix(SHELL).unwrap_or(&name);
        let mut built_in = Script::BUILT_IN.into_iter();
        // A text has no name of a built-in setup script.
        let prefix = match built_in.any(|script| script.file_name() == name) {
            true => "own_",
            false => "",
        };
        Ok(Self {
            name: format!("{prefix}{stem}{ENDING}"),
            carried: carry_over(&source)?,
        })
    }

    pub(super) fn row(&self) -> Row<'_> {
        Row {
            script: &self.name,
            text: &self.carried.text,
            differences: self.carried.differences.iter().map(ToString::to_string).collect(),
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.carried.text
    }

    pub(super) fn print_differences(&self) {
        for difference in &self.carried.differences {
            errln!("{}: differs: {difference}", self.name);
        }
    }

    /// Writes the text where the configuration's `option script` finds it. An existing file is not replaced by another text.
    pub(super) fn write(&self, config: &Path) -> Result<(), Failure> {
        let folder = match config.parent() {
            Some(folder) if folder != Path::new("/etc/config") => folder.to_owned(),
            _ => PathBuf::from(FOLDERS[0]),
        };
        let file = folder.join(&self.name);
        let shown = file.display();
        let text = self.carried.text.as_bytes();
        match sqm_files::read_if_there(&file, text.len() as u64) {
            Ok(Some(found)) if found == text => {}
            Ok(None) => {
                std::fs::create_dir_all(&folder)
                    .with_context(|| format!("cannot make {}", folder.display()))?;
                sqm_files::create(&file, MODE, text).context("the text cannot be written")?;
            }
            _ => {
                return Err(Failure::Usage(anyhow!(
                    "{shown} exists and holds something else: rename or remove it first; nothing was written"
                )));
            }
        }
        outln!(
            "{shown} written; name it in a section: option script '{}'",
            self.name
        );
        Ok(())
    }
}
