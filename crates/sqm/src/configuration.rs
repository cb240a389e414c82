//! The configuration file, read with a limit and written only over the text that its writer has read.

use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow};
use sqm_files::Error;

/// The longest configuration in bytes; one with a thousand sections has a fifth of it.
pub(crate) const MAX_BYTES: u64 = 1 << 20;
/// Everybody may read it, as OpenWrt has it.
const MODE: u32 = 0o644;

/// Its text.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Error> {
    sqm_files::read(file, MAX_BYTES)
}

/// Its text, if there is one.
pub(crate) fn read_if_there(file: &Path) -> Result<Option<Vec<u8>>, Error> {
    sqm_files::read_if_there(file, MAX_BYTES)
}

/// Replaces it, if it still holds the text that was read before; `None`: if there was none.
pub(crate) fn replace(file: &Path, read: Option<&[u8]>, text: &[u8]) -> Result<(), Error> {
    sqm_files::replace_if(file, MODE, read, text)
}

/// The same for a command, which makes the folder as well.
pub(crate) fn write(file: &Path, read: Option<&[u8]>, text: &[u8]) -> anyhow::Result<()> {
    if let (Some(folder), None) = (file.parent(), read) {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    replace(file, read, text).map_err(|error| match error {
        Error::Changed { .. } => anyhow!(
            "{} was changed by another program while this one worked; nothing was written: run it again",
            file.display()
        ),
        error => anyhow!(error).context("the configuration cannot be written"),
    })
}

/// Puts back what a command has replaced with `text`; a text that somebody else has written since stays.
pub(crate) fn put_back(file: &Path, before: Option<&[u8]>, text: &[u8]) -> anyhow::Result<()> {
    let put_back = match before {
        Some(before) => replace(file, Some(text), before),
        None => sqm_files::remove_if(file, text),
    };
    match put_back {
        Err(Error::Changed { .. }) => {
            errln!(
                "sqm: {}: somebody has written it since, and that stays",
                file.display()
            );
            Ok(())
        }
        put_back => put_back.with_context(|| format!("{} could not be put back", file.display())),
    }
}
