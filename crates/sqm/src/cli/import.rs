//! `sqm import`.

mod script;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::ValueHint;
use serde::Serialize;
use sqm_configuration::uci_override;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::stack;
use sqm_plan::import::{self, Imported, Reader, Remark, Source, autorate};

use crate::json;
use script::Text;
use sqm_configuration::{Draft, EditError, load, parse_and_plan};
use sqm_plan::OptionValue;
use sqm_process::failure::{Failure, without_numbers};

/// Folder of sqm-scripts' files on generic Linux, and the suffix of their names.
const DIRECTORY: &str = "/etc/sqm";
const ENDING: &str = ".iface.conf";

/// Turn files of sqm-scripts, cake-autorate and sqm-autorate into sections of /etc/config/sqm.
///
/// A file's name says whose it is: `eth0.iface.conf` is of sqm-scripts on generic Linux, `config.primary.sh` of cake-autorate. A
/// setup script of one's own for sqm-scripts, `mine.qos`, becomes a text of tc commands, `mine.tc`, for `option script`; it is read
/// and never run. Any
/// other file is read as OpenWrt's /etc/config/cake-autorate or /etc/config/sqm-autorate. For sqm-scripts import reads a file
/// `default.conf` beside them first, as its systemd unit does, and `sqm.conf` last, as all of sqm-scripts does. The rates, bounds
/// and reflectors of cake-autorate and sqm-autorate are set in the section of the interface, if there is one.
///
/// Import reports everything that it does not carry over unchanged. It applies nothing. A file with an error is left out, and the
/// others are imported all the same.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm import                                show the sections for all of /etc/sqm
  sqm import /etc/sqm/eth0.iface.conf       for one file
  sqm import --write && sqm start           add them to /etc/config/sqm and apply them
  sqm import /root/cake-autorate/config.primary.sh --write
  sqm import /etc/config/cake-autorate
  sqm import /usr/lib/sqm/mine.qos --write  write /etc/sqm/mine.tc for option script 'mine.tc'
  sqm import --json | jq '.[].differences'

Exit codes: 0 imported, with or without differences; 1 cannot be written; 2 a file cannot be imported (the others are)")]
pub(crate) struct Args {
    /// Files to import [default: all *.iface.conf in /etc/sqm].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Do not read the default.conf beside them, as sqm-scripts' own command does not.
    #[arg(long)]
    no_default: bool,
    /// Write the sections to the configuration instead of printing them.
    #[arg(long)]
    write: bool,
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm", value_parser = uci_override::parse, value_hint = ValueHint::FilePath)]
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
        let links = load::links();
        let mut sections: Vec<Section> = Vec::new();
        let mut texts: Vec<Text> = Vec::new();
        let mut failed = 0;
        for file in &files {
            let mut errors = Vec::new();
            if is_script(file) {
                match Text::of(file) {
                    Ok(text) => texts.push(text),
                    Err(found) => errors.extend(found.iter().map(|error| located(file, error))),
                }
            } else {
                match self.read(file, &links) {
                    Ok(read) => {
                        for section in read {
                            let interface = section.imported.interface.clone();
                            if sections.iter().any(|other| other.imported.interface == interface) {
                                errors.push(format!(
                                    "{}: another file is for {interface}, too; name only one of them",
                                    file.display()
                                ));
                            } else {
                                sections.push(section);
                            }
                        }
                    }
                    Err(mut found) => errors.append(&mut found),
                }
            }
            failed += usize::from(!errors.is_empty());
            errors
                .iter()
                .for_each(|error| errln!("error: {}", without_numbers(error)));
        }
        self.answer(&sections, &texts, &links)?;
        if failed > 0 {
            let (failed, all) = (failed, files.len());
            return Err(Failure::Usage(anyhow!(
                "{failed} of {all} files could not be imported, because of these errors"
            )));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Prints or writes the sections.
    fn answer(&self, sections: &[Section], texts: &[Text], links: &[Link]) -> Result<(), Failure> {
        if self.json {
            let of_sections = sections.iter().map(Row::of).map(AnyRow::Section);
            let of_texts = texts.iter().map(Text::row).map(AnyRow::Text);
            let rows: Vec<AnyRow<'_>> = of_sections.chain(of_texts).collect();
            json::print(&json::list(&rows))?;
            return Ok(());
        }
        texts.iter().for_each(Text::print_differences);
        for section in sections {
            let interface = &section.imported.interface;
            for difference in &section.differences {
                errln!("{interface}: differs: {difference}");
            }
        }
        if self.write {
            for text in texts {
                text.write(&self.config)?;
            }
            return match sections.is_empty() {
                true => Ok(()),
                false => self.add(sections, links),
            };
        }
        let sections = sections.iter().map(|section| section.imported.to_string());
        let texts = texts.iter().map(|text| text.text().to_owned());
        let printed: Vec<String> = sections.chain(texts).collect();
        out!("{}", printed.join("\n"));
        Ok(())
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
                "{DIRECTORY} has no *{ENDING}; name the files to import. The settings of a {DIRECTORY}/sqm.conf beside \
                 /etc/config/sqm are reported by 'sqm plan'"
            )));
        }
        Ok(files)
    }

    /// The sections of a file, or all that is wrong with it.
    fn read(&self, file: &Path, links: &[Link]) -> Result<Vec<Section>, Vec<String>> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let located = |errors: Vec<Remark>| -> Vec<String> {
            errors.iter().map(|error| self::located(file, error)).collect()
        };
        let imported = match name.strip_suffix(ENDING).filter(|name| !name.is_empty()) {
            Some(interface) => vec![self.sqm_scripts(file, interface, links).map_err(located)?],
            None => rate_movers(file, &name).map_err(located)?,
        };
        let sections = imported.into_iter().map(|imported| Section::of(imported, links));
        sections.collect()
    }

    /// The section of a file of sqm-scripts.
    fn sqm_scripts(&self, file: &Path, interface: &str, links: &[Link]) -> Result<Imported, Vec<Remark>> {
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
            .map(|(file, reader)| Ok((file.display().to_string(), text_of(&file)?, reader)))
            .collect::<Result<Vec<_>, Vec<Remark>>>()?;
        let sources = texts.iter().map(|(name, text, reader)| Source {
            name,
            text,
            reader: *reader,
        });
        let sources: Vec<Source<'_>> = sources.collect();
        let mut imported = import::import(interface, &sources)?;
        let device = stack::device(links, &imported.interface);
        import::keep_counted_bytes(&mut imported, &device);
        Ok(imported)
    }

    /// Writes the sections into the file. Other sections stay as they are.
    fn add(&self, sections: &[Section], links: &[Link]) -> Result<(), Failure> {
        load::refuse_staged(&self.config)?;
        let file = self.config.display();
        let before =
            sqm_configuration::read_if_there(&self.config).context("cannot read the configuration")?;
        let text = before.clone().unwrap_or_default();
        load::parse(&text, &self.config, links)?;
        let mut draft = Draft::of(&text).map_err(|errors| anyhow!("{file}: {}", errors[0]))?;
        for Section { imported, .. } in sections {
            let edited = match draft.section_of(&imported.interface) {
                None => add(&mut draft, imported),
                Some(section) if imported.is_autorate => set_rates(&mut draft, section, imported),
                Some(_) => {
                    return Err(Failure::Usage(anyhow!(
                        "{file} has a section for {} already: remove it first; nothing was written",
                        imported.interface
                    )));
                }
            };
            edited.context("the configuration cannot be changed; nothing was written")?;
        }
        let text = draft.finish();
        load::parse(&text, &self.config, links)?;
        sqm_configuration::write(&self.config, before.as_deref(), &text)?;
        outln!(
            "{file}: {} written; 'sqm plan' shows the queues",
            count(sections.len())
        );
        Ok(())
    }
}

/// The sections of a file of cake-autorate or sqm-autorate.
fn rate_movers(file: &Path, name: &str) -> Result<Vec<Imported>, Vec<Remark>> {
    let text = text_of(file)?;
    let shown = file.display().to_string();
    let source = Source {
        name: &shown,
        text: &text,
        reader: Reader::Shell,
    };
    if name.ends_with(".sh") {
        return Ok(vec![autorate::from_shell(&source)?]);
    }
    let known = autorate::from_uci(&source).ok().flatten();
    known.ok_or_else(|| {
        vec![about(
            "import knows no such file: one of sqm-scripts is the device's name followed by .iface.conf, one of \
             cake-autorate ends in .sh or is OpenWrt's /etc/config/cake-autorate, one of sqm-autorate is \
             /etc/config/sqm-autorate"
                .to_owned(),
        )]
    })
}

/// A section that was imported, and all that differs from before.
struct Section {
    imported: Imported,
    differences: Vec<String>,
}

impl Section {
    /// Checks that the section is valid. Its warnings and conversions are differences, too.
    fn of(imported: Imported, links: &[Link]) -> Result<Self, Vec<String>> {
        let name = format!("the section for {}", imported.interface);
        let text = imported.to_string().into_bytes();
        let (_, loaded) =
            parse_and_plan(text, Path::new(&name), links).map_err(|invalid| invalid.messages())?;
        let remarks = imported.differences.iter().map(ToString::to_string);
        let warnings = loaded.warnings.iter().map(ToString::to_string);
        let notes = loaded.plans.iter().flat_map(|plan| plan.notes.iter().cloned());
        let differences = remarks.chain(warnings).chain(notes).collect();
        Ok(Self {
            imported,
            differences,
        })
    }
}

fn add(draft: &mut Draft, imported: &Imported) -> Result<(), EditError> {
    let section = draft.add_section()?;
    set(draft, section, imported, |_| true)
}

/// Sets what moves the rates in a section that has queues already. If the other program was off, autorate is.
fn set_rates(draft: &mut Draft, section: usize, imported: &Imported) -> Result<(), EditError> {
    set(draft, section, imported, |name| {
        !["enabled", "interface", "script"].contains(&name)
    })?;
    if imported.get("enabled") == Some("0") {
        let (name, value) = ("autorate".to_owned(), "0".to_owned());
        draft.set(section, &OptionValue::Text { name, value })?;
    }
    Ok(())
}

fn set(
    draft: &mut Draft,
    section: usize,
    imported: &Imported,
    wanted: impl Fn(&str) -> bool,
) -> Result<(), EditError> {
    for (name, value) in imported.options.iter().filter(|(name, _)| wanted(name)) {
        let (name, value) = ((*name).to_owned(), value.clone());
        draft.set(section, &OptionValue::Text { name, value })?;
    }
    Ok(())
}

/// The remark with its file. A remark about the file as a whole gets the file's name here.
fn located(file: &Path, error: &Remark) -> String {
    match error.file.as_str() {
        "" => format!("{}: {error}", file.display()),
        _ => error.to_string(),
    }
}

/// A remark about a file as a whole.
fn about(message: String) -> Remark {
    Remark {
        file: String::new(),
        line: 0,
        message,
    }
}

fn text_of(file: &Path) -> Result<String, Vec<Remark>> {
    let bytes = load::text(file).map_err(|error| vec![about(format!("{error:#}"))])?;
    String::from_utf8(bytes).map_err(|_| vec![about("it is not a text file".to_owned())])
}

fn count(sections: usize) -> String {
    match sections {
        1 => "a section".to_owned(),
        n => format!("{n} sections"),
    }
}

/// True for a setup script of sqm-scripts.
fn is_script(file: &Path) -> bool {
    file.to_string_lossy().ends_with(script::SHELL)
}

#[derive(Serialize)]
#[serde(untagged)]
enum AnyRow<'a> {
    Section(Row<'a>),
    Text(script::Row<'a>),
}

#[derive(Serialize)]
struct Row<'a> {
    interface: &'a str,
    options: Vec<Named<'a>>,
    differences: &'a [String],
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'static str,
    value: &'a str,
}

impl<'a> Row<'a> {
    fn of(section: &'a Section) -> Self {
        let options = section.imported.options.iter();
        Self {
            interface: &section.imported.interface,
            options: options.map(|(name, value)| Named { name, value }).collect(),
            differences: &section.differences,
        }
    }
}
