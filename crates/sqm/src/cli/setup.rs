//! `sqm setup`: asks three questions, writes a configuration, and brings verified shaping into force.

use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use sqm_configuration::{Draft, EditError, parse_and_plan};
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::uplink::{Uplink, uplinks};
use sqm_kernel::verify::Comparison;
use sqm_kernel::{capability, observe, stack, state};
use sqm_measure::result::TestResult;
use sqm_plan::OptionValue;
use sqm_plan::arithmetic::{self, Headers, Known};
use sqm_plan::line_rate::{self, FASTEST_LINE};
use sqm_plan::link::{PRESETS, Preset};
use sqm_plan::settings::Script;

use super::calc::parse_link;
use super::shape;
use sqm_process::failure::Failure;
use sqm_process::output;

/// Find the interface to the internet, ask for the line and its rates, write the configuration, apply and verify it.
///
/// The shaper gets 85 % of an advertised rate and 95 % of a measured one: it must be slower than the line, so that the
/// queue is here. Setup proposes the values of the present configuration and keeps its comments and other options. With
/// all flags given, it asks nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm setup
  sqm setup --link docsis --advertised 100mbit 10mbit
  sqm setup --interface eth0.2 --link vdsl2-pppoe --measured 92mbit 31mbit
  sqm setup --link gpon --test before.json
  sqm setup --link docsis --advertised 100mbit 10mbit --dry-run

Exit codes: 0 set up and verified, 1 failed (the previous state is restored), 2 usage, 3 needs root, 4 the kernel lacks a feature")]
pub(crate) struct Args {
    /// The device that leads to the internet [default: the one of the default route].
    #[arg(long, value_name = "DEVICE")]
    interface: Option<String>,
    /// The access technology, by its name in `sqm calc links`.
    #[arg(long, value_name = "LINK", value_parser = parse_link)]
    link: Option<&'static Preset>,
    /// Download and upload rates of the contract.
    #[arg(long, num_args = 2, value_names = ["DOWN", "UP"], value_parser = parse_rate, conflicts_with_all = ["measured", "test"])]
    advertised: Vec<Rate>,
    /// Download and upload rates as measured without shaping.
    #[arg(long, num_args = 2, value_names = ["DOWN", "UP"], value_parser = parse_rate, conflicts_with = "test")]
    measured: Vec<Rate>,
    /// The result of 'sqm test --json' without shaping: setup converts its goodput to the gross rate.
    #[arg(long, value_name = "FILE")]
    test: Option<PathBuf>,
    /// Print the configuration that would be written, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm")]
    config: PathBuf,
    /// Folder for the state that `sqm stop` restores.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

/// The settings to be written.
struct Wanted {
    interface: String,
    link: &'static Preset,
    download: Rate,
    upload: Rate,
}

impl Args {
    pub(super) const fn changes_something(&self) -> bool {
        !self.dry_run
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if !self.dry_run {
            capability::require_privileges("sqm setup")?;
        }
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let before =
            sqm_configuration::read_if_there(&self.config).context("cannot read the configuration")?;
        let draft = self.draft(before.as_deref().unwrap_or_default())?;
        let interface = self.interface(&mut socket, &links)?;
        let existing = Existing::of(&draft, &interface);
        let wanted = self.wanted(interface, &existing)?;
        let text =
            changed(draft, existing.section, &wanted).context("the configuration cannot be changed")?;
        self.check(&text, &links)?;
        if self.dry_run {
            out!("{text}");
            return Ok(ExitCode::SUCCESS);
        }
        let is_new = before.as_deref() != Some(text.as_bytes());
        if is_new {
            sqm_configuration::write(&self.config, before.as_deref(), text.as_bytes())?;
            outln!("{}: written", self.config.display());
        } else {
            outln!("{}: has these settings already", self.config.display());
        }
        if let Err(error) = shape::bring_into_force(self.config.clone(), self.state_dir.clone(), true) {
            // Nothing is left half done: the file is restored, too.
            if is_new {
                sqm_configuration::put_back(&self.config, before.as_deref(), text.as_bytes())?;
            }
            return Err(error);
        }
        self.verify(&mut socket, &wanted.interface)
    }

    fn draft(&self, text: &[u8]) -> Result<Draft, Failure> {
        Draft::of(text).map_err(|errors| {
            let file = self.config.display();
            errors
                .iter()
                .for_each(|error| errln!("error: {file}:{}: {}", error.line, error.message));
            Failure::Usage(anyhow!("{file} has errors: correct them first"))
        })
    }

    /// The device to shape. If it was not named, prints which one was found and why.
    fn interface(&self, socket: &mut Socket, links: &[Link]) -> Result<String, Failure> {
        if let Some(name) = &self.interface {
            let link = observe::find(links, name)?;
            if link.leads_out() {
                return Ok(name.clone());
            }
        }
        let uplinks = uplinks(socket, links);
        if let Some(name) = &self.interface {
            let others = links.iter().filter(|link| link.leads_out());
            let others: Vec<&str> = others.map(|link| link.name.as_str()).collect();
            let best = match uplinks.first() {
                Some(Uplink { device, .. }) => format!("{device} leads to the internet"),
                None => format!("there are: {}", others.join(", ")),
            };
            return Err(Failure::Usage(anyhow!(
                "{name} leads to no other machine, so there is nothing to shape: name the device that leads to \
                 the internet with --interface ({best})"
            )));
        }
        let [uplink, others @ ..] = uplinks.as_slice() else {
            return Err(Failure::Usage(anyhow!(
                "there is no default route to find the device by: name the device that leads to the internet with \
                 --interface DEVICE"
            )));
        };
        let name = &uplink.device;
        if !uplink.is_known {
            return Err(Failure::Usage(anyhow!(
                "the default route goes through the tunnel {name}, and no route shows which device carries its \
                 packets: name the device of the line with --interface DEVICE"
            )));
        }
        outln!("{name} leads to the internet: {}", uplink.reason());
        for layer in stack::device(links, name).stack {
            outln!("  it has {layer}");
        }
        let others: Vec<&str> = others.iter().map(|other| other.device.as_str()).collect();
        if !others.is_empty() {
            outln!(
                "  another way to the internet, with lower preference, is {}; to shape that device, give --interface",
                others.join(", ")
            );
        }
        Ok(name.clone())
    }

    fn wanted(&self, interface: String, existing: &Existing) -> Result<Wanted, Failure> {
        let link = match self.link {
            Some(link) => link,
            None => ask_link(existing.link)?,
        };
        let (download, upload) = if let [down, up] = self.advertised[..] {
            (
                arithmetic::shaped(down, Known::Advertised),
                arithmetic::shaped(up, Known::Advertised),
            )
        } else if let [down, up] = self.measured[..] {
            (
                arithmetic::shaped(down, Known::Measured),
                arithmetic::shaped(up, Known::Measured),
            )
        } else if let Some(file) = &self.test {
            of_test(file, link)?
        } else {
            (
                ask_rate("Download", existing.download)?,
                ask_rate("Upload", existing.upload)?,
            )
        };
        Ok(Wanted {
            interface,
            link,
            download,
            upload,
        })
    }

    /// Checks the whole new file. A file with errors is not written.
    fn check(&self, text: &str, links: &[Link]) -> Result<(), Failure> {
        match parse_and_plan(text.as_bytes().to_owned(), &self.config, links) {
            Ok((_, loaded)) => {
                loaded
                    .warnings
                    .iter()
                    .for_each(|warning| errln!("warning: {warning}"));
                Ok(())
            }
            Err(invalid) => {
                invalid.print();
                let file = self.config.display();
                Err(Failure::Usage(anyhow!(
                    "{file} would have errors; nothing was written"
                )))
            }
        }
    }

    fn verify(&self, socket: &mut Socket, interface: &str) -> Result<ExitCode, Failure> {
        let links = observe::links(socket)?;
        let text = sqm_configuration::read(&self.config).context("cannot read what was written")?;
        let (_, loaded) = parse_and_plan(text, &self.config, &links).map_err(|invalid| anyhow!(invalid))?;
        for plan in loaded.plans.iter().filter(|plan| plan.interface == interface) {
            let found = Comparison::read(socket, plan)?;
            if let Some(difference) = found.differences.first() {
                return Err(Failure::Failed(anyhow!(
                    "the configuration was applied, but the kernel holds something \
                    else: {difference}"
                )));
            }
        }
        outln!("{interface}: verified: the kernel holds what is configured");
        outln!(
            "next: measure latency under load with 'sqm test HOST'; raise the rates as long as it stays low"
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Settings that the configuration already has for the interface.
#[derive(Default)]
struct Existing {
    section: Option<usize>,
    link: Option<&'static Preset>,
    download: Option<Rate>,
    upload: Option<Rate>,
}

impl Existing {
    fn of(draft: &Draft, interface: &str) -> Self {
        let Some(section) = draft.section_of(interface) else {
            return Self::default();
        };
        let rate = |direction: Direction| match draft.value(section, direction.name()) {
            Some(OptionValue::Rate(_, rate)) if rate.kbits_per_sec() > 0 => Some(rate),
            _ => None,
        };
        let link = match draft.value(section, "link") {
            Some(OptionValue::Link(link)) => Some(link),
            _ => None,
        };
        Self {
            section: Some(section),
            link,
            download: rate(Direction::Download),
            upload: rate(Direction::Upload),
        }
    }
}

/// The file's text with the wanted options, in the existing section or in a new one at the end.
fn changed(mut draft: Draft, section: Option<usize>, wanted: &Wanted) -> Result<String, EditError> {
    let section = match section {
        Some(section) => section,
        None => draft.add_section()?,
    };
    draft.set(section, &OptionValue::Enabled(true))?;
    draft.set(section, &OptionValue::Interface(wanted.interface.clone()))?;
    draft.set(section, &OptionValue::Rate(Direction::Download, wanted.download))?;
    draft.set(section, &OptionValue::Rate(Direction::Upload, wanted.upload))?;
    if !draft.gives(section, "script") {
        draft.set(section, &OptionValue::Script(Script::BestOfCake))?;
    }
    draft.set(section, &OptionValue::Link(wanted.link))?;
    Ok(draft.finish())
}

/// Shaper rates from a result of `sqm test`. Its goodput is converted to the gross rate first.
fn of_test(file: &Path, link: &Preset) -> Result<(Rate, Rate), Failure> {
    let text = fs::read_to_string(file)
        .with_context(|| format!("cannot read {}", file.display()))
        .map_err(Failure::Usage)?;
    let result = TestResult::from_json(&text).map_err(|error| {
        Failure::Usage(anyhow!("{} is not a result of sqm test: {error}", file.display()))
    })?;
    let framing = arithmetic::framing(link);
    let rate = |what: &str, mbit: Option<f64>| {
        let goodput = Rate::from_bits_per_sec((mbit.unwrap_or(0.0) * 1e6) as u64);
        let gross = arithmetic::gross(goodput, 1500, Headers::IPV4.timestamps(), &framing);
        match gross {
            Some(gross) if gross.bits_per_sec() > 0 => Ok(arithmetic::shaped(gross, Known::Measured)),
            _ => Err(Failure::Usage(anyhow!(
                "{} has no {what}: test both directions at once, as sqm test does by default",
                file.display()
            ))),
        }
    };
    Ok((
        rate("download", result.summary.download_mbit)?,
        rate("upload", result.summary.upload_mbit)?,
    ))
}

/// Asks until the answer is valid. An empty answer accepts the proposal.
fn ask<T>(
    question: &str,
    proposal: Option<String>,
    flag: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Failure::Usage(anyhow!(
            "{question} is missing and standard input is not a terminal: give {flag}"
        )));
    }
    loop {
        match &proposal {
            Some(proposal) => out!("{question} [{proposal}]: "),
            None => out!("{question}: "),
        }
        if output::stdout().flush().is_err() || output::is_lost() {
            return Err(Failure::Usage(anyhow!(
                "{question} is missing and cannot be asked for, because standard output cannot be written: give \
                 {flag}"
            )));
        }
        let mut answer = String::new();
        if stdin.lock().read_line(&mut answer)? == 0 {
            return Err(Failure::Usage(anyhow!("no answer; nothing was changed")));
        }
        let answer = match (answer.trim(), &proposal) {
            ("", Some(proposal)) => proposal.clone(),
            (answer, _) => answer.to_owned(),
        };
        match parse(&answer) {
            Ok(answer) => return Ok(answer),
            Err(why) => outln!("{why}"),
        }
    }
}

fn ask_link(known: Option<&'static Preset>) -> Result<&'static Preset, Failure> {
    if std::io::stdin().is_terminal() {
        for preset in &PRESETS {
            outln!("  {:<20} {}", preset.name, preset.about);
        }
    }
    let proposal = known.map_or("unknown", |preset| preset.name);
    ask(
        "Access technology",
        Some(proposal.to_owned()),
        "--link",
        parse_link,
    )
}

/// Asks for a direction's rate and returns the shaper rate. A known rate is a shaper rate already and is kept
/// unchanged; an answer is the line's rate.
fn ask_rate(direction: &str, known: Option<Rate>) -> Result<Rate, Failure> {
    let proposal = known.map(|rate| format!("keep {rate}"));
    let question = format!("{direction} as advertised, such as 100mbit (or 'measured 95mbit')");
    ask(
        &question,
        proposal,
        "--advertised or --measured",
        |answer| match (answer.split_once(' '), known) {
            (Some(("keep", _)), Some(known)) => Ok(known),
            (Some(("measured", rate)), _) => {
                Ok(arithmetic::shaped(parse_rate(rate.trim())?, Known::Measured))
            }
            _ => Ok(arithmetic::shaped(parse_rate(answer)?, Known::Advertised)),
        },
    )
}

/// Parses a rate that a person has typed. A bare number is kbit/s, as in the configuration, if no line is so fast that it could be
/// Mbit/s.
pub(super) fn parse_rate(text: &str) -> Result<Rate, String> {
    let rate = match text.trim().parse::<u64>() {
        Ok(number) if number > FASTEST_LINE.kbits_per_sec() / 1000 => {
            line_rate::parse(&format!("{number}kbit"))
        }
        _ => line_rate::parse(text),
    };
    match rate {
        Ok(rate) if rate.kbits_per_sec() > 0 => Ok(rate),
        Ok(_) => Err("the rate must be at least 1kbit".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(link: &str, down: &str, up: &str) -> Wanted {
        Wanted {
            interface: "eth0".to_owned(),
            link: parse_link(link).unwrap(),
            download: parse_rate(down).unwrap(),
            upload: parse_rate(up).unwrap(),
        }
    }

    fn after(text: &str, wanted: &Wanted) -> String {
        let draft = Draft::of(text.as_bytes()).unwrap();
        let section = Existing::of(&draft, "eth0").section;
        changed(draft, section, wanted).unwrap()
    }

    #[test]
    fn a_new_section_is_appended_and_nothing_else_changes() {
        let others = "# mine\nconfig queue 'lan'\n\toption interface 'eth1' # keep\n\toption foreign 'x'";
        let text = after(others, &wanted("docsis", "85mbit", "10mbit"));
        let new = "config queue\n\toption enabled '1'\n\toption interface 'eth0'\n\toption download '85000'\n\
                   \toption upload '10000'\n\toption script 'best_of_cake.qos'\n\toption link 'docsis'\n";
        assert_eq!(text, format!("{others}\n\n{new}"));
        assert_eq!(after("", &wanted("docsis", "85mbit", "10mbit")), new);
        // A second change to the same values changes nothing.
        assert_eq!(after(&text, &wanted("docsis", "85mbit", "10mbit")), text);
    }

    #[test]
    fn a_section_keeps_its_comments_its_options_and_its_words() {
        let text = "config queue 'wan' # the line\n\toption interface 'eth0'\n\toption enabled '0'\n\
                    \toption download '85mbit' # tuned\n\toption upload '9000'\n\toption script 'layer_cake.qos'\n\
                    \toption foreign 'x'\n";
        let expected = text
            .replace("enabled '0'", "enabled '1'")
            .replace("'9000'", "'10000'")
            + "\toption link 'docsis'\n";
        assert_eq!(after(text, &wanted("docsis", "85mbit", "10mbit")), expected);
        assert_eq!(after(&expected, &wanted("docsis", "85mbit", "10mbit")), expected);
    }

    #[test]
    fn a_bare_number_is_kbit_if_it_can_be_nothing_else() {
        assert_eq!(parse_rate("85000"), parse_rate("85mbit"));
        for text in ["50", "1000", "25000"] {
            let error = parse_rate(text).unwrap_err();
            assert!(error.contains(&format!("{text}mbit, or {text}kbit")), "{error}");
        }
        assert!(parse_rate("").unwrap_err().contains("such as 80mbit"));
    }
}
