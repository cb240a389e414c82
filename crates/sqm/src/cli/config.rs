//! The configuration file for commands that set up queues. The whole file is read and checked before it is narrowed
//! to the requested interfaces.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::ValueHint;
use sqm_configuration::uci_override;
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_plan::RateOverrides;
use sqm_plan::import::{self, Reader, Remark, Source};
use sqm_plan::plan::Plan;

#[cfg(feature = "full")]
use super::completion;
use sqm_configuration::load::{parse, parse_in_force, read, read_with_warnings};
use sqm_process::failure::Failure;

/// Which sections of which file.
#[derive(clap::Args)]
pub(super) struct Which {
    /// The configuration, in the format of OpenWrt's sqm.
    #[arg(long, value_name = "FILE", default_value = "/etc/config/sqm", value_parser = uci_override::parse, value_hint = ValueHint::FilePath)]
    pub(super) config: PathBuf,
    /// Only these interfaces [default: all that are configured].
    #[arg(value_name = "INTERFACE")]
    #[cfg_attr(feature = "full", arg(add = completion::interfaces()))]
    pub(super) interfaces: Vec<String>,
}

impl Which {
    /// The requested plans. Prints the errors and warnings of the whole file on standard error.
    pub(super) fn plans(&self, links: &[Link]) -> Result<Vec<Plan>, Failure> {
        self.plans_of(&self.text()?, links)
    }

    /// The file's text, with changes that OpenWrt's `uci` has staged, which are reported.
    pub(super) fn text(&self) -> Result<Vec<u8>, Failure> {
        read_with_warnings(&self.config)
    }

    /// Like [`Self::plans`], for a text that the caller has read.
    pub(super) fn plans_of(&self, text: &[u8], links: &[Link]) -> Result<Vec<Plan>, Failure> {
        let loaded = parse(text, &self.config, links)?;
        loaded
            .warnings
            .iter()
            .for_each(|warning| errln!("warning: {warning}"));
        let gives_all = |option: &str| loaded.settings.iter().all(|settings| settings.gives(option));
        for remark in self.globals(&gives_all) {
            errln!("warning: {remark}");
        }
        if loaded.plans.is_empty() {
            let file = self.config.display();
            errln!("sqm: {file} has no enabled section: there is nothing to shape");
        }
        self.narrow(loaded.plans)
    }

    /// The settings of sqm-scripts' `sqm/sqm.conf` beside the folder `config` that no section has. sqm-scripts applies that file to
    /// all sections, and sqm does not read it.
    fn globals(&self, is_replaced: &dyn Fn(&str) -> bool) -> Vec<Remark> {
        let folder = self.config.parent().filter(|folder| folder.ends_with("config"));
        let Some(folder) = folder.and_then(Path::parent) else {
            return Vec::new();
        };
        let file = folder.join("sqm/sqm.conf");
        let text = sqm_configuration::read_if_there(&file).ok().flatten();
        let Some(text) = text.and_then(|text| String::from_utf8(text).ok()) else {
            return Vec::new();
        };
        let source = Source {
            name: &file.display().to_string(),
            text: &text,
            reader: Reader::Shell,
        };
        import::globals(&source, is_replaced)
    }

    /// Like [`Self::plans`], but at the rates that autorate has in force. Returns these rates as well, and prints no
    /// warnings.
    pub(super) fn plans_in_force(
        &self,
        socket: &mut Socket,
        links: &[Link],
        records: &Path,
    ) -> Result<(Vec<Plan>, RateOverrides), Failure> {
        let (text, _) = read(&self.config)?;
        let (loaded, held) = parse_in_force(&text, &self.config, socket, links, records)?;
        Ok((self.narrow(loaded.plans)?, held))
    }

    fn narrow(&self, plans: Vec<Plan>) -> Result<Vec<Plan>, Failure> {
        let file = self.config.display();
        if self.interfaces.is_empty() {
            return Ok(plans);
        }
        let enabled: Vec<_> = plans.iter().map(|plan| plan.interface.clone()).collect();
        if let Some(unknown) = self.interfaces.iter().find(|name| !enabled.contains(name)) {
            let enabled = match &enabled[..] {
                [] => "none".to_owned(),
                names => names.join(", "),
            };
            return Err(Failure::Usage(anyhow!(
                "{file} has no enabled section for {unknown}; it has enabled sections for: {enabled}"
            )));
        }
        Ok(plans
            .into_iter()
            .filter(|plan| self.interfaces.contains(&plan.interface))
            .collect())
    }
}
