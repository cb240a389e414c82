//! The page in a browser: its password, its address and its service.

mod address;
mod options;

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use sqm_kernel::netlink::link::Link;
use sqm_kernel::netlink::socket::Socket;
use sqm_process::failure::Failure;
use sqm_web::NewPassword;

use self::address::proposal;
use self::options::PageOptions;
use super::answers::{confirm, has_terminal};
use super::boot::{self, Manager, Service};
use super::told::Told;

/// Options of the services, for systemd and for OpenWrt's script.
const OPTIONS_FILE: &str = "/etc/default/sqm";
/// The page's folder on OpenWrt, as its script has it.
const OPENWRT_DIR: &str = "/etc/sqm-web";
/// The file is small; what is longer is not ours. Bytes.
const MOST_BYTES: u64 = 64 << 10;
/// A service needs less to start, and a page that does not start is reported after this time. A choice.
const STARTS_WITHIN: Duration = Duration::from_secs(10);
/// Time between two attempts to reach the page. A choice.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// The flags of the page.
#[derive(clap::Args)]
pub(super) struct PageArgs {
    /// Set up the page in a browser: password, address and service
    #[arg(long, conflicts_with = "no_page")]
    page: bool,
    /// Leave the page as it is
    #[arg(long)]
    no_page: bool,
    /// File whose first line is the page's password; '-' is standard input [default: ask, or keep the present password]
    #[arg(long, value_name = "FILE", requires = "page")]
    page_password: Option<PathBuf>,
    /// Address and port of the page [default: those it has, or this machine's private address, port 8443]
    #[arg(long, value_name = "ADDRESS:PORT", requires = "page")]
    page_listen: Option<SocketAddr>,
}

/// The decision on the page, before anything is changed.
pub(super) enum Page<'a> {
    Leave,
    Ask,
    SetUp {
        /// A new password; `None` asks for one at the terminal, or keeps the present one.
        password: Option<NewPassword>,
        listen: Option<&'a SocketAddr>,
    },
}

impl PageArgs {
    /// Reads the password and checks the flags. `is_dialogue` is true if setup asks questions.
    pub(super) fn decide(&self, config: &Path, is_dialogue: bool) -> Result<Page<'_>, Failure> {
        let is_served = config == sqm_configuration::uci_override::of(Path::new(boot::SERVED_CONFIG));
        if !self.page {
            return Ok(match is_dialogue && is_served && !self.no_page {
                true => Page::Ask,
                false => Page::Leave,
            });
        }
        if !is_served {
            return Err(Failure::Usage(anyhow!(
                "--page needs the configuration {}: the page's service shows no other",
                boot::SERVED_CONFIG
            )));
        }
        let password = match &self.page_password {
            Some(file) if file.as_os_str() == "-" => Some(NewPassword::ask()?),
            Some(file) => Some(NewPassword::from_file(file)?),
            None if has_terminal() || sqm_web::has_password(dir()) => None,
            None => {
                return Err(Failure::Usage(anyhow!(
                    "the page's password is missing and standard input is not a terminal: give --page-password FILE"
                )));
            }
        };
        Ok(Page::SetUp {
            password,
            listen: self.page_listen.as_ref(),
        })
    }
}

/// Sets the page up as decided, and returns its URL. `shaped` is the device of the line, which the page does not listen on.
///
/// # Errors
///
/// A step failed that a flag asked for. A failure after a question is a warning.
pub(super) fn set_up(
    page: Page<'_>,
    socket: &mut Socket,
    links: &[Link],
    shaped: &str,
    told: Told,
) -> Result<Option<String>, Failure> {
    let present = sqm_files::read_if_there(Path::new(OPTIONS_FILE), MOST_BYTES)?.unwrap_or_default();
    let present = String::from_utf8(present).with_context(|| format!("cannot read {OPTIONS_FILE}"))?;
    let mut options = PageOptions::of(&present);
    let proposal = proposal(socket, links, shaped);
    let is_asked = matches!(page, Page::Ask);
    let password = match page {
        Page::Leave => return Ok(None),
        Page::Ask => {
            if options.listen().is_none() {
                options.set_listen(proposal);
            }
            let url = options.url(proposal.ip());
            if !confirm(&format!("Open the page to browsers at {url}?"), true, false)? {
                return Ok(None);
            }
            None
        }
        Page::SetUp { password, listen } => {
            match listen {
                Some(listen) => options.set_listen(*listen),
                None if options.listen().is_none() => options.set_listen(proposal),
                None => {}
            }
            password
        }
    };
    let url = options.url(proposal.ip());
    match start(password, &options, &present, &url, told) {
        Err(error) if is_asked => {
            errln!("warning: the page is not set up: {error}");
            Ok(None)
        }
        other => other.map(|()| Some(url)),
    }
}

fn start(
    password: Option<NewPassword>,
    options: &PageOptions,
    present: &str,
    url: &str,
    told: Told,
) -> Result<(), Failure> {
    let password = match password {
        None if !sqm_web::has_password(dir()) => {
            told.line("A password for the page, of 8 characters or more:");
            Some(NewPassword::ask()?)
        }
        given => given,
    };
    if let Some(password) = password {
        password.save(dir())?;
        told.line("the page's password is set");
    }
    let text = options.in_file(present);
    let is_changed = text != present;
    if is_changed {
        let expected = (!present.is_empty()).then_some(present.as_bytes());
        sqm_files::replace_if(Path::new(OPTIONS_FILE), 0o644, expected, text.as_bytes())?;
        told.line(format_args!("{OPTIONS_FILE}: the page's options are written"));
    }
    if !boot::enable(Service::Page, is_changed, told) {
        return Err(Failure::Failed(anyhow!(
            "its service did not start; by hand it is 'sqm web {}'",
            options.words()
        )));
    }
    if !options
        .listen()
        .is_none_or(|listen| is_answered(listen, STARTS_WITHIN))
    {
        return Err(Failure::Failed(anyhow!(
            "nothing answers at {url}: see 'systemctl status sqm-web', or 'logread' on OpenWrt"
        )));
    }
    told.line(format_args!("the page: {url}"));
    if options.has_tls() {
        told.line("  the browser warns once, because this machine signed the page's certificate itself");
    }
    if options.is_for_this_machine() {
        told.line(
            "  only browsers on this machine reach it; --page --page-listen ADDRESS:PORT opens it to other machines"
        );
    }
    Ok(())
}

/// The page's folder.
fn dir() -> &'static Path {
    Path::new(match Manager::of(Service::Page) {
        Some(Manager::Procd) => OPENWRT_DIR,
        _ => sqm_web::DIR,
    })
}

/// True if a connection to this address is accepted within the time.
fn is_answered(address: SocketAddr, within: Duration) -> bool {
    let end = Instant::now() + within;
    loop {
        if TcpStream::connect_timeout(&address, within).is_ok() {
            return true;
        }
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(BETWEEN_ATTEMPTS);
    }
}
