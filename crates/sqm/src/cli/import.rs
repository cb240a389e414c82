//! `sqm import`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde::Serialize;
use sqm_kernel::netlink::link::Link;
use sqm_plan::import::{self, Imported, Reader, Source};

use sqm_configuration::{Draft, EditError, load};
use sqm_plan::OptionValue;
use sqm_process::failure::Failure;

/// Folder of sqm-scripts' files on generic Linux, and the suffix of their names.
const DIRECTORY: &str = "/etc/sqm";
const ENDING: &str = ".iface.conf";

/// Turn sqm-scripts' files of generic Linux (/etc/sqm/*.iface.conf) into sections of /etc/config/sqm.
///
/// Import reads a file `default.conf` beside them first, as sqm-scripts' systemd unit does, and `sqm.conf` last, as all
/// of sqm-scripts does. It reports everything that it does not carry over unchanged. It applies nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm import                                show the sections for all of /etc/sqm
  sqm import /etc/sqm/eth0.iface.conf       for one file
  sqm import --write && sqm start           add them to /etc/config/sqm and apply them
  sqm import --json | jq '.[].differences'

Exit codes: 0 imported, with or without differences; 1 cannot be written; 2 part of a file cannot be read, nothing is written")]
pub(crate) struct Args {
    /// Files of sqm-scripts, named after the device: eth0.iface.conf [default: all of /etc/sqm].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Do not read the default.conf beside them, as sqm-scripts' own command does not.
    #[arg(long)]
    no_default: bool,
    /// Add the sections to the configuration instead of printing them.
    #[arg(long)]
    write: bool,
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm")]
    config: PathBuf,
    /// Print each section's options and differences as JSON.
    #[arg(long, conflicts_with = "write")]
    json: bool,
}

impl Args {
    pub(super) const fn changes_something(&self) -> bool {
        self.write
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let files = self.files()?;
        let mut imported: Vec<Imported> = Vec::new();
        let mut errors = Vec::new();
        for file in &files {
            match self.one(file)? {
                Ok(section) if imported.iter().any(|other| other.interface == section.interface) => {
                    let (file, interface) = (file.display(), section.interface);
                    errors.push(format!(
                        "{file}: another file is for {interface}, too; name only one of them"
                    ));
                }
                Ok(section) => imported.push(section),
                Err(wrong) => errors.extend(wrong.iter().map(|error| located(file, error))),
            }
        }
        if !errors.is_empty() {
            errors.iter().for_each(|error| errln!("error: {error}"));
            return Err(Failure::Usage(anyhow!(
                "nothing was imported, because of these errors"
            )));
        }
        let links = load::links();
        for section in &imported {
            check(section, &links)?;
        }
        if self.json {
            let rows: Vec<Row<'_>> = imported.iter().map(Row::of).collect();
            outln!("{}", serde_json::to_string_pretty(&rows).context("writing JSON")?);
            return Ok(ExitCode::SUCCESS);
        }
        for section in &imported {
            let said = |difference| errln!("{}: differs: {difference}", section.interface);
            section.differences.iter().for_each(said);
        }
        if self.write {
            self.add(&imported, &links)?;
        } else {
            let sections: Vec<String> = imported.iter().map(ToString::to_string).collect();
            out!("{}", sections.join("\n"));
        }
        Ok(ExitCode::SUCCESS)
    }

    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        if !self.files.is_empty() {
            return Ok(self.files.clone());
        }
        let entries = std::fs::read_dir(DIRECTORY)
            .with_context(|| format!("cannot read {DIRECTORY}; name the files to import"))
            .map_err(Failure::Usage)?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.to_string_lossy().ends_with(ENDING))
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(Failure::Usage(anyhow!(
                "{DIRECTORY} has no *{ENDING}; name the files to import"
            )));
        }
        Ok(files)
    }

    fn one(&self, file: &Path) -> Result<Result<Imported, Vec<import::Remark>>, Failure> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let interface = name.strip_suffix(ENDING).filter(|name| !name.is_empty());
        let interface = interface.ok_or_else(|| {
            Failure::Usage(anyhow!(
                "{}: the name must be the device's name followed by {ENDING}",
                file.display()
            ))
        })?;
        let beside = |name: &str| Some(file.with_file_name(name)).filter(|file| file.exists());
        let default = beside("default.conf").filter(|_| !self.no_default);
        let files = [
            (default, Reader::ShellOrSystemd),
            (Some(file.to_owned()), Reader::ShellOrSystemd),
            (beside("sqm.conf"), Reader::Shell),
        ];
        let files = files
            .into_iter()
            .filter_map(|(file, reader)| Some((file?, reader)));
        let texts = files
            .map(|(file, reader)| Ok((file.display().to_string(), read(&file)?, reader)))
            .collect::<Result<Vec<_>, Failure>>()?;
        let sources = texts.iter().map(|(name, text, reader)| Source {
            name,
            text,
            reader: *reader,
        });
        let sources: Vec<Source<'_>> = sources.collect();
        Ok(import::import(interface, &sources))
    }

    /// Appends sections to the file. Existing sections stay as they are.
    fn add(&self, imported: &[Imported], links: &[Link]) -> Result<(), Failure> {
        let file = self.config.display();
        let before =
            sqm_configuration::read_if_there(&self.config).context("cannot read the configuration")?;
        let text = before.clone().unwrap_or_default();
        let existing = load::parse(&text, &self.config, links)?.plans;
        let mut draft = Draft::of(&text).map_err(|errors| anyhow!("{file}: {}", errors[0]))?;
        for section in imported {
            if existing.iter().any(|plan| plan.interface == section.interface) {
                return Err(Failure::Usage(anyhow!(
                    "{file} has a section for {} already: remove it first; nothing was written",
                    section.interface
                )));
            }
            add(&mut draft, section).context("a section cannot be added; nothing was written")?;
        }
        let text = draft.finish();
        sqm_configuration::write(&self.config, before.as_deref(), text.as_bytes())?;
        outln!(
            "{file}: {} added; 'sqm plan' shows the queues",
            count(imported.len())
        );
        Ok(())
    }
}

fn add(draft: &mut Draft, imported: &Imported) -> Result<(), EditError> {
    let section = draft.add_section()?;
    for (name, value) in &imported.options {
        let (name, value) = ((*name).to_owned(), value.clone());
        draft.set(section, &OptionValue::Text { name, value })?;
    }
    Ok(())
}

/// The remark with its file. A remark about the file as a whole gets the file's name here.
fn located(file: &Path, error: &import::Remark) -> String {
    match error.file.as_str() {
        "" => format!("{}: {error}", file.display()),
        _ => error.to_string(),
    }
}

fn read(file: &Path) -> Result<String, Failure> {
    let bytes = load::read(file)?;
    String::from_utf8(bytes).map_err(|_| Failure::Usage(anyhow!("{} is not a text file", file.display())))
}

/// Checks that the section is valid before it is written. Prints its warnings and conversions, because they are
/// differences, too.
fn check(section: &Imported, links: &[Link]) -> Result<(), Failure> {
    let name = format!("the section for {}", section.interface);
    let loaded = load::parse(section.to_string().as_bytes(), Path::new(&name), links)?;
    for warning in &loaded.warnings {
        errln!("warning: {warning}");
    }
    for note in loaded.plans.iter().flat_map(|plan| &plan.notes) {
        errln!("{}: note: {note}", section.interface);
    }
    Ok(())
}

fn count(sections: usize) -> String {
    match sections {
        1 => "a section".to_owned(),
        n => format!("{n} sections"),
    }
}

#[derive(Serialize)]
struct Row<'a> {
    interface: &'a str,
    options: Vec<(&'static str, &'a str)>,
    differences: Vec<String>,
}

impl<'a> Row<'a> {
    fn of(section: &'a Imported) -> Self {
        let options = section.options.iter();
        Self {
            interface: &section.interface,
            options: options.map(|(name, value)| (*name, value.as_str())).collect(),
            differences: section.differences.iter().map(ToString::to_string).collect(),
        }
    }
}
