//! `sqm fleet hub`, `enroll` and `revoke`: keys, credentials and the server's configuration. None of them needs the server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Subcommand;
use sqm_fleet::Name;
use sqm_fleet::credentials::{Keys, Role};
use sqm_fleet::nats::{Options, check};
use sqm_fleet::server::systemd_drop_in;
use sqm_fleet::signed::SigningKey;
use sqm_process::Failure;

use super::HubArg;
use super::folder::{Cluster, Fleet, Folder, Router};
use super::when::now;

/// Where the drop-in for a systemd service belongs.
const DROP_IN_FOR: &str = "for /etc/systemd/system/nats-server.service.d/";

/// Make the folder of a fleet: keys, and a configuration for nats-server.
#[derive(clap::Args)]
pub(super) struct Hub {
    #[command(subcommand)]
    command: HubCommand,
}

#[derive(Subcommand)]
enum HubCommand {
    Init(Init),
}

/// Make a new fleet.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet hub init berlin --url tls://hub.example.net:4222 --certificate hub.pem --private-key hub.key
  sqm fleet hub init lab --url nats://10.0.0.1:4222              without encryption, for a trial
  sqm fleet hub init big --url tls://a.example.net,tls://b.example.net,tls://c.example.net --cluster a.example.net,b.example.net,c.example.net \
    --certificate hub.pem --private-key hub.key                  three servers, of which one may fail
  nats-server --config berlin/server.conf                        nats-server 2.9 or later, on the hub

Exit codes: 0 done, 1 the folder cannot be written, 2 wrong arguments.")]
struct Init {
    /// The folder to make. Whoever has its keys can write to every router's store; the documents are signed by documents.seed, which
    /// may be kept elsewhere.
    folder: PathBuf,
    /// The servers as routers reach them; several with commas between them.
    #[arg(long, value_name = "URL")]
    url: String,
    /// Where the server listens.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "0.0.0.0:4222")]
    listen: String,
    /// The folder of the server's data.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/nats")]
    store: PathBuf,
    /// The server's certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,
    /// The key of the certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,
    /// The certificate authority by which routers know the server, PEM, if it is one of your own.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// Three or five servers instead of one: their hosts as they reach each other, at port 6222. Three of them have a copy of each value.
    #[arg(long, value_name = "HOSTS", value_delimiter = ',', value_parser = host)]
    cluster: Vec<String>,
}

impl Hub {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            HubCommand::Init(args) => args.run(),
        }
    }
}

impl Init {
    fn run(self) -> Result<ExitCode, Failure> {
        let options = Options {
            url: self.url.clone(),
            ..Options::default()
        };
        check(&options).map_err(|error| Failure::Usage(anyhow!("--url: {error}")))?;
        for path in [
            Some(&self.store),
            self.certificate.as_ref(),
            self.private_key.as_ref(),
            self.certificate_authority.as_ref(),
        ]
        .into_iter()
        .flatten()
        {
            quotable(path)?;
        }
        let cluster = cluster(&self)?;
        let tls = tls(&self).map_or_else(String::new, |tls| format!("tls {{\n{tls}}}\n"));
        let (keys, signing) = (Keys::generate(), SigningKey::generate());
        let fleet = Fleet {
            version: 1,
            url: self.url,
            certificate_authority: self.certificate_authority,
            key: signing.public().to_string(),
            replicas: if cluster.is_some() { 3 } else { 1 },
            server: format!(
                "listen: \"{}\"\njetstream {{\n  store_dir: \"{}\"\n}}\n{tls}",
                self.listen,
                self.store.display()
            ),
            cluster,
            revoked: BTreeMap::new(),
        };
        let folder = Folder::create(&self.folder, &fleet, &keys, &signing)?;
        let operator: Name = "operator".parse().expect("a name");
        folder.save_credentials("operator", &keys.enroll(&operator, Role::Operator, now()).text)?;
        let servers = write_servers(&folder, &fleet, &keys)?;
        let drop_in = format!("# Made by 'sqm fleet', {DROP_IN_FOR}.\n{}", systemd_drop_in());
        let drop_in = folder.save_public("nats-server.service.conf", &drop_in)?;
        if fleet.url.contains("nats://") {
            errln!(
                "sqm: warning: nats:// is not encrypted: whoever is on the way can read every configuration. Documents are signed all the \
                 same; for real routers use tls:// with --certificate and --private-key"
            );
        }
        outln!("Made {}.", self.folder.display());
        for (host, file) in servers {
            outln!("  Start {host}:     nats-server --config {}", file.display());
        }
        outln!("  As a service:         {}: {DROP_IN_FOR}", drop_in.display());
        outln!(
            "  Add a router:         sqm fleet enroll NAME --hub {}",
            self.folder.display()
        );
        outln!(
            "  Keep safe:            keys.json and documents.seed (not in git; .gitignore leaves them out)"
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// A path that can be written between quotes in the server's configuration.
fn quotable(path: &Path) -> Result<(), Failure> {
    let text = path
        .to_str()
        .filter(|text| !text.contains(['"', '\\', '\n', '\r']));
    text.map(drop).ok_or_else(|| {
        Failure::Usage(anyhow!(
            "{} cannot be written in the server's configuration",
            path.display()
        ))
    })
}

/// The host of a server: a name or an IPv4 address. It is also the server's name and a part of its file's.
fn host(text: &str) -> Result<String, String> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(is_allowed) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "'{text}' is no host: give a name or an IPv4 address, without a port"
        ))
    }
}

/// The encryption of a listener.
fn tls(args: &Init) -> Option<String> {
    let (certificate, key) = (args.certificate.as_ref()?, args.private_key.as_ref()?);
    Some(format!(
        "  cert_file: \"{}\"\n  key_file: \"{}\"\n",
        certificate.display(),
        key.display()
    ))
}

fn cluster(args: &Init) -> Result<Option<Cluster>, Failure> {
    let mut hosts = args.cluster.clone();
    hosts.sort();
    hosts.dedup();
    match hosts.len() {
        0 => Ok(None),
        3 | 5 if hosts.len() == args.cluster.len() => {
            let authority = args.certificate_authority.as_ref();
            let authority =
                authority.map_or_else(String::new, |file| format!("  ca_file: \"{}\"\n", file.display()));
            let tls = tls(args).map(|tls| format!("{tls}{authority}"));
            Ok(Some(Cluster { hosts, tls }))
        }
        _ => Err(Failure::Usage(anyhow!(
            "--cluster needs three or five different hosts: a cluster writes while more than half of its servers are there"
        ))),
    }
}

/// Writes the configuration of each server: its host and its file.
fn write_servers(folder: &Folder, fleet: &Fleet, keys: &Keys) -> Result<Vec<(String, PathBuf)>, Failure> {
    let part = keys.server_part(now(), &fleet.revoked);
    let text = |name: &str, cluster: &str| {
        format!(
            "# Made by 'sqm fleet'. 'sqm fleet revoke' writes it anew.\nserver_name: \"{name}\"\n{}{cluster}{part}",
            fleet.server
        )
    };
    let Some(cluster) = &fleet.cluster else {
        let file = folder.save_server("server.conf", &text("hub", ""))?;
        return Ok(vec![("the server".into(), file)]);
    };
    let routes = keys.cluster_part(&cluster.hosts, cluster.tls.as_deref());
    cluster
        .hosts
        .iter()
        .map(|host| {
            let file = folder.save_server(&format!("server-{host}.conf"), &text(host, &routes))?;
            Ok((host.clone(), file))
        })
        .collect()
}

/// Add a router: make its credentials.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet enroll r1 --group homes --site berlin-1 --hub berlin
  sqm fleet enroll r2 --value download=80mbit --value upload=20mbit    for {{download}} in configurations

The router needs two files, the credentials and a section for its configuration; the commands that bring them there are printed. A router that is enrolled again gets new credentials; the
old ones count until 'sqm fleet revoke'.

Exit codes: 0 done, 1 the folder cannot be written, 2 wrong arguments.")]
pub(super) struct Enroll {
    /// The router: letters, digits, '-' and '_'.
    name: Name,
    /// The group that it belongs to, for roll-outs.
    #[arg(long)]
    group: Option<Name>,
    /// Where it is, for roll-outs.
    #[arg(long)]
    site: Option<Name>,
    /// Values for placeholders {{NAME}} of configurations.
    #[arg(long = "value", value_name = "NAME=VALUE", value_delimiter = ',', value_parser = super::template::parse_value)]
    values: Vec<(String, String)>,
    #[command(flatten)]
    hub: HubArg,
}

impl Enroll {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, fleet) = Folder::open(&self.hub.folder)?;
        if self.name.as_str() == "operator" {
            return Err(Failure::Usage(anyhow!(
                "'operator' is the name of the operator's own credentials"
            )));
        }
        let keys = folder.keys()?;
        let credentials = keys.enroll(&self.name, Role::Router, now());
        let known = folder.routers()?.remove(&self.name).unwrap_or_default();
        let router = Router {
            user: credentials.user,
            group: self.group.or(known.group),
            site: self.site.or(known.site),
            values: known.values.into_iter().chain(self.values).collect(),
        };
        let file = folder.save_credentials(self.name.as_str(), &credentials.text)?;
        folder.save_router(&self.name, &router)?;
        let mut section = format!(
            "\nconfig daemon\n\toption fleet_url '{}'\n\toption fleet_credentials '/etc/sqm/fleet.creds'\n\toption fleet_key '{}'\n",
            fleet.url, fleet.key
        );
        if fleet.certificate_authority.is_some() {
            section += "\toption fleet_ca '/etc/sqm/fleet-ca.pem'\n";
        }
        let section_file = folder.save_public(&format!("credentials/{}.conf", self.name), &section)?;
        outln!("Credentials:                {}", file.display());
        outln!("For its /etc/config/sqm:    {}", section_file.display());
        outln!("{}", section.trim_end());
        outln!("\nBring them to the router and restart its daemon, for instance by ssh:");
        outln!(
            "  ssh root@{} 'mkdir -p /etc/sqm; umask 077; cat >/etc/sqm/fleet.creds' <{}",
            self.name,
            file.display()
        );
        if let Some(authority) = &fleet.certificate_authority {
            outln!(
                "  scp {} root@{}:/etc/sqm/fleet-ca.pem",
                authority.display(),
                self.name
            );
        }
        outln!(
            "  ssh root@{} 'cat >>/etc/config/sqm; systemctl restart sqm' <{}",
            self.name,
            section_file.display()
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Make the credentials of a router count no more, of one that was lost for instance.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sqm fleet revoke r1 --hub berlin && nats-server --signal reload

Exit codes: 0 done, 1 the folder cannot be written, 2 wrong arguments.")]
pub(super) struct Revoke {
    /// The router.
    name: Name,
    #[command(flatten)]
    hub: HubArg,
}

impl Revoke {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let (folder, mut fleet) = Folder::open(&self.hub.folder)?;
        let router = folder.router(&self.name)?;
        fleet.revoked.insert(router.user, now());
        folder.save(&fleet)?;
        for (host, file) in write_servers(&folder, &fleet, &folder.keys()?)? {
            outln!(
                "{} has the revocation. Let {host} read it: nats-server --signal reload",
                file.display()
            );
        }
        outln!("'sqm fleet enroll {}' makes new credentials.", self.name);
        Ok(ExitCode::SUCCESS)
    }
}
