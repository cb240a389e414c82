//! `sqm setup`: from a line to verified shaping with the best rates, at every boot.
//!
//! Each step can be given by a flag or left out. Without a terminal, the steps that no flag asks for are left out.

mod answers;
mod boot;
mod counting;
mod document;
mod found;
mod kind;
#[cfg_attr(not(feature = "full"), path = "setup/without_page.rs")]
mod page;
mod questions;
mod rates;
mod section;
mod server;
mod tested;
mod told;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::ValueHint;
use sqm_configuration::uci_override;
use sqm_configuration::{Draft, Invalid, load, parse_and_plan};
use sqm_core::direction::Direction;
use sqm_core::units::Rate;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_kernel::uplink::{Uplink, uplinks};
use sqm_kernel::verify::Comparison;
use sqm_kernel::{capability, observe, stack, state};
use sqm_plan::arithmetic::Known;
use sqm_plan::link::Preset;
use sqm_process::failure::Failure;

use self::answers::{confirm, has_terminal};
use self::boot::Service;
use self::counting::{ANY_RATE, Counting, counting};
use self::document::{Overhead, SetUp};
use self::found::Found;
pub(super) use self::kind::link_names;
use self::page::PageArgs;
use self::questions::{ask_link, ask_rate, ask_speeds, parse_kind};
use self::rates::Rates;
pub(super) use self::rates::parse_rate;
use self::section::{Existing, Wanted, changed};
use self::server::{Files, Server};
use self::tested::Tested;
use self::told::Told;
#[cfg(feature = "full")]
use super::completion;
use super::shape;
use super::suggested::Suggested;
use crate::json;

/// True if this program has `sqm tune` and the tests by HTTP: those for routers do not.
const HAS_SEARCH: bool = cfg!(feature = "full");

/// Find the interface to the internet, ask for the line, measure it, write the configuration, apply and verify it
///
/// Asks for the kind of line, its speeds and a server to measure with; tests the line, finds the best rates, tests again,
/// and has the service start at boot. Every question can be answered by a flag. Without a server, the shaper gets 85 % of
/// an advertised rate and 95 % of a measured one: it must be slower than the line, so that the queue is here. Setup
/// proposes the values of the present configuration and keeps its comments and other options. Without a terminal it asks
/// nothing, and leaves out what no flag asks for.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm setup
  sqm setup --link vdsl2 --server server.example --boot
  sqm setup --link vdsl2 --server server.example --boot --page --page-password password.txt
  sqm setup --link docsis --advertised 100mbit 10mbit
  sqm setup --interface eth0.2 --link vdsl2-pppoe --measured 92mbit 31mbit
  sqm setup --link gpon --test before.json
  sqm setup --link gpon --test download.json upload.json
  sqm setup --link docsis --advertised 100mbit 10mbit --dry-run
  sqm setup --link vdsl2 --server server.example --boot --json | jq '.before.letter, .after.letter'

Exit codes: 0 set up and verified, 1 failed (the previous state is restored), 2 usage, 3 needs root, 4 the kernel lacks a feature")]
pub(crate) struct Args {
    /// The device that leads to the internet [default: the one of the default route].
    #[arg(long, value_name = "DEVICE")]
    #[cfg_attr(feature = "full", arg(add = completion::interfaces()))]
    interface: Option<String>,
    /// The kind of line, by its name in `sqm calc links` or in other words: cable, 'VDSL PPPoE', fibre.
    #[arg(long, value_name = "LINK", hide_possible_values = true,
          value_parser = Suggested { names: link_names, parse: parse_kind })]
    link: Option<&'static Preset>,
    /// Download and upload rates of the contract.
    #[arg(long, num_args = 2, value_names = ["DOWN", "UP"], value_parser = parse_rate, conflicts_with_all = ["measured", "test"])]
    advertised: Vec<Rate>,
    /// Download and upload rates as measured without shaping.
    #[arg(long, num_args = 2, value_names = ["DOWN", "UP"], value_parser = parse_rate, conflicts_with = "test")]
    measured: Vec<Rate>,
    /// The result of 'sqm test --json' without shaping, or two of them with one direction each: setup converts the goodput to
    /// the gross rate and takes 97 % of it.
    #[arg(long, value_name = "FILE", num_args = 1..=2)]
    test: Vec<PathBuf>,
    #[command(flatten)]
    server: Server,
    /// Keep the overhead of the line's kind, even if the search measures another one.
    #[arg(long)]
    no_overhead: bool,
    /// Have the service start at boot (systemd or procd), and now.
    #[arg(long, conflicts_with = "no_boot")]
    boot: bool,
    /// Leave the start at boot as it is.
    #[arg(long)]
    no_boot: bool,
    #[command(flatten)]
    page: PageArgs,
    /// Write without asking for a confirmation.
    #[arg(long, short)]
    yes: bool,
    /// Print the configuration that would be written, and change nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print one document at the end, and everything else on standard error. Setup then asks nothing, as without a terminal.
    #[arg(long)]
    json: bool,
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = boot::SERVED_CONFIG, value_parser = uci_override::parse, value_hint = ValueHint::FilePath)]
    config: PathBuf,
    /// Folder for the state that `sqm stop` restores.
    #[arg(long, value_name = "DIR", env = "SQM_STATE_DIR", default_value = state::DIRECTORY)]
    state_dir: PathBuf,
}

impl Args {
    pub(super) const fn changes_something(&self) -> bool {
        !self.dry_run
    }

    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if !self.dry_run {
            capability::require_privileges("sqm setup")?;
        }
        self.check_flags()?;
        load::refuse_staged(&self.config)?;
        let page = self.page.decide(&self.config, self.is_dialogue())?;
        let mut socket = Socket::open().context("cannot open a netlink socket")?;
        let links = observe::links(&mut socket)?;
        let present =
            sqm_configuration::read_if_there(&self.config).context("cannot read the configuration")?;
        let draft = self.draft(present.as_deref().unwrap_or_default())?;
        let interface = self.interface(&mut socket, &links)?;
        let existing = Existing::of(&draft, &interface);
        let link = match self.link {
            Some(link) => link,
            None => ask_link(existing.link, &stack::device(&links, &interface).stack)?,
        };
        let counting = self.counting(&draft, &existing, &interface, link, &links)?;
        let (rates, server) = self.rates_and_server(&existing, &counting)?;
        let before = match server.is_there() && !self.dry_run {
            true => {
                self.told().line(format_args!(
                    "measuring the line as it is, with {}:",
                    server.name()
                ));
                Some(server.test()?)
            }
            false => None,
        };
        let wanted = self.wanted(interface, link, rates, &existing, &counting, before.as_ref())?;
        let text =
            changed(draft, existing.section, &wanted).context("the configuration cannot be changed")?;
        self.check(&text, &links)?;
        let mut document = self.document(&wanted, &counting);
        if self.dry_run {
            let text = String::from_utf8_lossy(&text);
            document.text = Some(&text);
            match self.json {
                true => json::print(&json::object(&document))?,
                false => out!("{text}"),
            }
            return Ok(ExitCode::SUCCESS);
        }
        if self.is_dialogue() {
            self.summarise(&wanted, &server);
            if !self.yes && !confirm("Write this, and bring it into force?", true, false)? {
                return Err(Failure::Usage(anyhow!("no confirmation; nothing was changed")));
            }
        }
        let is_written = self.write_and_apply(present.as_deref(), &text)?;
        self.verify(&mut socket, &wanted.interface)?;
        let measured = self.measure(&mut socket, &server, &wanted)?;
        let service = self.start_at_boot()?;
        let page = page::set_up(page, &mut socket, &links, &wanted.interface, self.told());
        self.conclude(before.as_ref(), &measured, service);
        if self.json {
            document.is_written = is_written || measured.is_written;
            document.is_verified = true;
            document.before = before.as_ref().and_then(Tested::grade);
            document.add(&measured);
            document.service = service;
            document.page_url = page.as_ref().ok().cloned().flatten();
            json::print(&json::object(&document))?;
        }
        page?;
        if self.boot && service == Some(document::Service::Failed) {
            return Err(Failure::Failed(anyhow!(
                "{} is shaped until the next boot: its service could not be enabled, for the reason above",
                wanted.interface
            )));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The document of a setup that has only been planned so far.
    fn document<'a>(&self, wanted: &'a Wanted, counting: &Counting) -> SetUp<'a> {
        SetUp {
            file: self.config.display().to_string(),
            is_written: false,
            text: None,
            interface: &wanted.interface,
            link: wanted.link.name,
            download_kbit: wanted.download.kbits_per_sec(),
            upload_kbit: wanted.upload.kbits_per_sec(),
            overhead: Overhead {
                counted_bytes: i32::from(counting.framing.overhead),
                measured: None,
            },
            is_verified: false,
            before: None,
            after: None,
            service: None,
            page_url: None,
        }
    }

    const fn told(&self) -> Told {
        match self.json {
            true => Told::Error,
            false => Told::Output,
        }
    }

    /// True if a person answers questions: there is a terminal, and the flags do not say everything that is needed.
    fn is_dialogue(&self) -> bool {
        let are_rates_given =
            !self.advertised.is_empty() || !self.measured.is_empty() || !self.test.is_empty();
        has_terminal() && !self.json && (self.link.is_none() || !(are_rates_given || self.server.is_there()))
    }

    /// Refuses flags that would have no effect.
    fn check_flags(&self) -> Result<(), Failure> {
        let is_served = self.config == uci_override::of(Path::new(boot::SERVED_CONFIG));
        if self.boot && !is_served {
            return Err(Failure::Usage(anyhow!(
                "--boot needs the configuration {}: the service reads no other",
                boot::SERVED_CONFIG
            )));
        }
        Ok(())
    }

    /// How the section will count packets. Its errors are printed.
    fn counting(
        &self,
        draft: &Draft,
        existing: &Existing,
        interface: &str,
        link: &'static Preset,
        links: &[Link],
    ) -> Result<Counting, Failure> {
        let wanted = Wanted {
            interface: interface.to_owned(),
            link,
            download: ANY_RATE,
            upload: ANY_RATE,
        };
        let text = changed(draft.clone(), existing.section, &wanted)
            .context("the configuration cannot be changed")?;
        let counted =
            counting(text, &self.config, interface, links).map_err(|invalid| self.refuse(&invalid))?;
        counted.ok_or_else(|| Failure::Usage(anyhow!("{interface} would have no section")))
    }

    /// The rates that flags or answers give, and the server to measure with.
    fn rates_and_server(&self, existing: &Existing, counting: &Counting) -> Result<(Rates, Server), Failure> {
        let given = match () {
            () if !self.advertised.is_empty() => rates::shaped(&self.advertised, Known::Advertised),
            () if !self.measured.is_empty() => rates::shaped(&self.measured, Known::Measured),
            () if !self.test.is_empty() => rates::of_files(&self.test, counting)?,
            () => Rates::default(),
        };
        if !self.is_dialogue() {
            if given == Rates::default() && !self.server.is_there() {
                return Err(Failure::Usage(anyhow!(
                    "the rates are missing and standard input is not a terminal: give --advertised or --measured, --test, \
                     or --server"
                )));
            }
            return Ok((given, self.server.clone()));
        }
        let rates = match given == Rates::default() {
            true => ask_speeds(existing, self.server.is_there())?,
            false => given,
        };
        Ok((rates, self.server.or_ask()?))
    }

    fn wanted(
        &self,
        interface: String,
        link: &'static Preset,
        rates: Rates,
        existing: &Existing,
        counting: &Counting,
        before: Option<&Tested>,
    ) -> Result<Wanted, Failure> {
        // A test through a shaper shows the shaper's rate.
        let of_test = |direction| {
            let tested = before.filter(|_| !existing.is_enabled)?;
            tested.rate(direction, counting)
        };
        let measured = Rates {
            download: of_test(Direction::Download),
            upload: of_test(Direction::Upload),
        };
        let rates = measured.or(rates);
        let known = |direction: Direction| match rates.of(direction).or_else(|| existing.rate(direction)) {
            Some(rate) => Ok(rate),
            None => ask_rate(direction),
        };
        Ok(Wanted {
            interface,
            link,
            download: known(Direction::Download)?,
            upload: known(Direction::Upload)?,
        })
    }

    fn summarise(&self, wanted: &Wanted, server: &Server) {
        outln!("interface  {}", wanted.interface);
        outln!("line       {}: {}", wanted.link.name, wanted.link.about);
        let then = match server.is_there() {
            true if HAS_SEARCH => format!(", until the search with {} has found better ones", server.name()),
            _ => String::new(),
        };
        outln!("rates      {} down, {} up{then}", wanted.download, wanted.upload);
        outln!("file       {}", self.config.display());
    }

    /// True if the file has changed.
    fn write_and_apply(&self, present: Option<&[u8]>, text: &[u8]) -> Result<bool, Failure> {
        let is_new = present != Some(text);
        if is_new {
            sqm_configuration::write(&self.config, present, text)?;
            self.told()
                .line(format_args!("{}: written", self.config.display()));
        } else {
            self.told().line(format_args!(
                "{}: has these settings already",
                self.config.display()
            ));
        }
        if let Err(error) = shape::bring_into_force(self.config.clone(), self.state_dir.clone(), !self.json) {
            // Nothing is left half done: the file is restored, too.
            if is_new {
                sqm_configuration::put_back(&self.config, present, text)?;
            }
            return Err(error);
        }
        Ok(is_new)
    }

    /// Searches the best rates if this program can, verifies them and tests the line with them. Without a server it does nothing.
    fn measure(&self, socket: &mut Socket, server: &Server, wanted: &Wanted) -> Result<Measured, Failure> {
        let mut measured = Measured::default();
        if !server.is_there() {
            return Ok(measured);
        }
        if HAS_SEARCH {
            self.search(&mut measured, socket, server, wanted)?;
        }
        self.told().line("measuring the line again:");
        measured.after = Some(server.test()?);
        Ok(measured)
    }

    /// Searches the best rates, and fills `measured` with those that the user takes over.
    fn search(
        &self,
        measured: &mut Measured,
        socket: &mut Socket,
        server: &Server,
        wanted: &Wanted,
    ) -> Result<(), Failure> {
        self.told()
            .line("searching the best rates, which takes about a minute and a half:");
        let files = Files {
            config: &self.config,
            state_dir: &self.state_dir,
        };
        let Some(report) = server.tune(&wanted.interface, &files, !self.no_overhead)? else {
            errln!("warning: the search found no rates: those from before it stay in force");
            return Ok(());
        };
        let found = Found::of(&report)?;
        if let Some(is_written) = self.take_over(&found, socket, wanted)? {
            measured.is_written = is_written;
            measured.rates = Some((found.download, found.upload));
            measured.overhead = found.measured_overhead();
            measured.set_overhead = found.set_overhead();
        }
        Ok(())
    }

    /// Shows the findings of the search, writes them and brings them into force. True if the file has changed, `None` if the user does
    /// not want them.
    fn take_over(
        &self,
        found: &Found,
        socket: &mut Socket,
        wanted: &Wanted,
    ) -> Result<Option<bool>, Failure> {
        self.told().line(found.summary(wanted.link).trim_end());
        if let Some(warning) = &found.warning {
            errln!("warning: {warning}");
        }
        let question = "Write these, and bring them into force?";
        if self.is_dialogue() && !self.yes && !confirm(question, true, false)? {
            outln!("the settings from before the search stay in force");
            return Ok(None);
        }
        let present = sqm_configuration::read(&self.config).context("cannot read what was written")?;
        let text = found.written(&present, &wanted.interface)?;
        let is_written = self.write_and_apply(Some(&present), &text)?;
        self.verify(socket, &wanted.interface)?;
        Ok(Some(is_written))
    }

    /// Has the service start at boot if that is wanted. `None` if it is left as it was.
    fn start_at_boot(&self) -> Result<Option<document::Service>, Failure> {
        let is_served = self.config == uci_override::of(Path::new(boot::SERVED_CONFIG));
        let is_wanted =
            self.boot || (self.is_dialogue() && is_served && !self.no_boot && boot::asks_to_start()?);
        Ok(
            is_wanted.then(|| match boot::enable(Service::Daemon, false, self.told()) {
                true => document::Service::Enabled,
                false => document::Service::Failed,
            }),
        )
    }

    /// Says in one sentence what has become of the line, and in another what is left to do.
    fn conclude(&self, before: Option<&Tested>, measured: &Measured, service: Option<document::Service>) {
        let told = self.told();
        let after = measured.after.as_ref().and_then(Tested::grade);
        if let (Some(before), Some(after)) = (before.and_then(Tested::grade), after) {
            let rates = match measured.rates {
                Some((down, up)) => format!(", shaped at {down} down and {up} up"),
                None => String::new(),
            };
            told.line(format_args!(
                "before: {}; now: {}{rates}",
                before.words(),
                after.words()
            ));
            told.line(&after.sentence);
        } else if let Some((down, up)) = measured.rates {
            told.line(format_args!("now: shaped at {down} down and {up} up"));
        }
        match service {
            Some(document::Service::Enabled) => {}
            Some(document::Service::Failed) => told.line("shaped until the next boot only"),
            None => told.line("shaped until the next boot: 'sqm setup --boot' has the service start then"),
        }
        if measured.rates.is_none() {
            told.line(
                "next: find the best rates with 'sqm tune HOST --write', and see the latency under load with 'sqm test HOST'",
            );
        }
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
        let told = self.told();
        told.line(format_args!("{name} leads to the internet: {}", uplink.reason()));
        for layer in stack::device(links, name).stack {
            told.line(format_args!("  it has {layer}"));
        }
        let others: Vec<&str> = others.iter().map(|other| other.device.as_str()).collect();
        if !others.is_empty() {
            told.line(format_args!(
                "  another way to the internet, with lower preference, is {}; to shape that device, give --interface",
                others.join(", ")
            ));
        }
        Ok(name.clone())
    }

    /// Checks the whole new file. A file with errors is not written.
    fn check(&self, text: &[u8], links: &[Link]) -> Result<(), Failure> {
        match parse_and_plan(text.to_owned(), &self.config, links) {
            Ok((_, loaded)) => {
                loaded
                    .warnings
                    .iter()
                    .for_each(|warning| errln!("warning: {warning}"));
                Ok(())
            }
            Err(invalid) => Err(self.refuse(&invalid)),
        }
    }

    /// Prints the errors that the new file would have.
    fn refuse(&self, invalid: &Invalid) -> Failure {
        invalid.print();
        Failure::Usage(anyhow!(
            "{} would have errors; nothing was written",
            self.config.display()
        ))
    }

    fn verify(&self, socket: &mut Socket, interface: &str) -> Result<(), Failure> {
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
        self.told().line(format_args!(
            "{interface}: verified: the kernel holds what is configured"
        ));
        Ok(())
    }
}

/// The findings of the search and of the test after it.
#[derive(Default)]
struct Measured {
    /// Shaper rates, download and upload.
    rates: Option<(Rate, Rate)>,
    after: Option<Tested>,
    /// True if the search has changed the file.
    is_written: bool,
    overhead: Option<found::Measured>,
    /// The measured overhead as it was configured, bytes; `None` if the counted one fits.
    set_overhead: Option<i32>,
}

impl SetUp<'_> {
    /// Adds the findings of the search and the test after it.
    fn add(&mut self, measured: &Measured) {
        if let Some((download, upload)) = measured.rates {
            self.download_kbit = download.kbits_per_sec();
            self.upload_kbit = upload.kbits_per_sec();
        }
        self.overhead.measured = measured.overhead;
        self.overhead.counted_bytes = measured.set_overhead.unwrap_or(self.overhead.counted_bytes);
        self.after = measured.after.as_ref().and_then(Tested::grade);
    }
}
