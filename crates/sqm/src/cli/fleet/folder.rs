//! The folder of a fleet: keys, credentials, a server's configuration, and what is known of each router. All but the secrets can be
//! kept in git.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use sqm_fleet::Name;
use sqm_fleet::credentials::Keys;
use sqm_fleet::nats::{Nats, Options};
use sqm_fleet::signed::{PublicKey, SigningKey};
use sqm_process::Failure;

use crate::json;

/// The longest file of the folder, bytes; a choice.
const MAX: u64 = 1024 * 1024;
const SECRET: u32 = 0o600;
const PUBLIC: u32 = 0o644;

/// Names of files that hold secrets.
const SECRETS: &str = "keys.json\ndocuments.seed\n*.creds\nserver-*.conf\nweb/\n";

/// `fleet.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fleet {
    pub(super) version: u32,
    /// The servers as routers reach them.
    pub(super) url: String,
    /// The certificate authority of the servers, relative to the folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) certificate_authority: Option<PathBuf>,
    /// The public key that signs documents.
    pub(super) key: String,
    /// How many servers have a copy of each value: 1 or 3.
    pub(super) replicas: u8,
    /// The configuration of each server without its name and the part for this fleet.
    pub(super) server: String,
    /// The servers, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cluster: Option<Cluster>,
    /// Public keys of users whose credentials do not count any more, and since when, seconds since 1970 (UTC).
    #[serde(default)]
    pub(super) revoked: BTreeMap<String, u64>,
}

impl Fleet {
    /// The public key that signs documents.
    pub(super) fn key(&self) -> Result<PublicKey, Failure> {
        PublicKey::parse(&self.key)
            .context("fleet.json")
            .map_err(Failure::Usage)
    }
}

/// Servers that keep copies of the same values.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cluster {
    /// Their hosts.
    pub(super) hosts: Vec<String>,
    /// The encryption between them, in the form of their configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tls: Option<String>,
}

/// `routers/NAME.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Router {
    /// The public key of its credentials.
    pub(super) user: String,
    pub(super) group: Option<Name>,
    pub(super) site: Option<Name>,
    /// Values for the placeholders of configurations.
    pub(super) values: BTreeMap<String, String>,
}

/// The folder.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder, which must not hold a fleet yet.
    pub(super) fn create(
        path: &Path,
        fleet: &Fleet,
        keys: &Keys,
        signing: &SigningKey,
    ) -> Result<Self, Failure> {
        if path.join("fleet.json").exists() {
            return Err(Failure::Usage(anyhow!(
                "{} holds a fleet already",
                path.display()
            )));
        }
        for folder in ["routers", "credentials"] {
            let folder = path.join(folder);
            std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let folder = Self(path.to_owned());
        folder.write("keys.json", SECRET, keys.text().as_bytes())?;
        folder.write(
            "documents.seed",
            SECRET,
            format!("{}\n", signing.seed()).as_bytes(),
        )?;
        folder.write(".gitignore", PUBLIC, SECRETS.as_bytes())?;
        // Last: a folder with this file is complete.
        folder.save(fleet)?;
        Ok(folder)
    }

    /// Opens a folder.
    pub(super) fn open(path: &Path) -> Result<(Self, Fleet), Failure> {
        let file = path.join("fleet.json");
        if !file.exists() {
            return Err(Failure::Usage(anyhow!(
                "{} is no folder of a fleet: make one with 'sqm fleet hub init', or name it with --hub",
                path.display()
            )));
        }
        let folder = Self(path.to_owned());
        let fleet = serde_json::from_slice(&folder.read("fleet.json")?)
            .with_context(|| file.display().to_string())
            .map_err(Failure::Usage)?;
        Ok((folder, fleet))
    }

    /// The folder of the page's server: password, certificate and log.
    pub(super) fn of_page(&self) -> PathBuf {
        self.0.join("web")
    }

    pub(super) fn save(&self, fleet: &Fleet) -> Result<(), Failure> {
        self.write_json("fleet.json", fleet)
    }

    pub(super) fn keys(&self) -> Result<Keys, Failure> {
        let text = String::from_utf8_lossy(&self.read("keys.json")?).into_owned();
        Keys::parse(&text)
            .with_context(|| self.0.join("keys.json").display().to_string())
            .map_err(Failure::Usage)
    }

    /// The key that signs documents: in this file, or in the folder.
    pub(super) fn signing_key(&self, fleet: &Fleet, file: Option<&Path>) -> Result<SigningKey, Failure> {
        let path = file.map_or_else(|| self.0.join("documents.seed"), Path::to_owned);
        let wrong =
            |error: anyhow::Error| Failure::Usage(error.context(format!("the key {}", path.display())));
        let text = sqm_files::read(&path, MAX).map_err(|error| wrong(error.into()))?;
        let key =
            SigningKey::from_seed(&String::from_utf8_lossy(&text)).map_err(|error| wrong(error.into()))?;
        let expected = fleet.key()?;
        if key.public() == expected {
            return Ok(key);
        }
        Err(wrong(anyhow!(
            "its public half is {}, and the routers of this fleet accept {expected}",
            key.public()
        )))
    }

    pub(super) fn router(&self, name: &Name) -> Result<Router, Failure> {
        let file = format!("routers/{name}.json");
        if !self.0.join(&file).exists() {
            return Err(Failure::Usage(anyhow!(
                "there is no router {name}: 'sqm fleet enroll {name}' adds it"
            )));
        }
        let bytes = self.read(&file)?;
        serde_json::from_slice(&bytes)
            .with_context(|| file.clone())
            .map_err(Failure::Usage)
    }

    /// All routers, in the order of their names.
    pub(super) fn routers(&self) -> Result<BTreeMap<Name, Router>, Failure> {
        let path = self.0.join("routers");
        let entries = std::fs::read_dir(&path).with_context(|| path.display().to_string())?;
        let names = entries.flatten().filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_suffix(".json")?
                .parse::<Name>()
                .ok()
        });
        names
            .map(|name| Ok((name.clone(), self.router(&name)?)))
            .collect()
    }

    pub(super) fn save_router(&self, name: &Name, router: &Router) -> Result<(), Failure> {
        self.write_json(&format!("routers/{name}.json"), router)
    }

    /// Writes a credentials file, and returns its path.
    pub(super) fn save_credentials(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let file = format!("credentials/{name}.creds");
        self.write(&file, SECRET, text.as_bytes())?;
        Ok(self.0.join(file))
    }

    /// Writes a server's configuration, and returns its path.
    pub(super) fn save_server(&self, file: &str, text: &str) -> Result<PathBuf, Failure> {
        self.write(file, SECRET, text.as_bytes())?;
        Ok(self.0.join(file))
    }

    /// Writes a file that holds no secret, and returns its path.
    pub(super) fn save_public(&self, file: &str, text: &str) -> Result<PathBuf, Failure> {
        self.write(file, PUBLIC, text.as_bytes())?;
        Ok(self.0.join(file))
    }

    /// Connects to the servers as the operator.
    pub(super) async fn connect(&self, fleet: &Fleet) -> Result<Nats, Failure> {
        let options = Options {
            url: fleet.url.clone(),
            credentials: Some(self.0.join("credentials/operator.creds")),
            certificate_authority: fleet.certificate_authority.as_ref().map(|file| self.0.join(file)),
            name: "operator".into(),
        };
        let store = Nats::connect_now(&options)
            .await
            .context("cannot reach the fleet's server")?;
        store
            .make_buckets(fleet.replicas)
            .await
            .context("cannot prepare the fleet's store")?;
        Ok(store)
    }

    fn write_json(&self, file: &str, value: &impl Serialize) -> Result<(), Failure> {
        let mut text = json::pretty(value)?;
        text.push('\n');
        self.write(file, PUBLIC, text.as_bytes())
    }

    fn write(&self, file: &str, mode: u32, bytes: &[u8]) -> Result<(), Failure> {
        Ok(sqm_files::replace(&self.0.join(file), mode, bytes).context("cannot write")?)
    }

    fn read(&self, file: &str) -> Result<Vec<u8>, Failure> {
        let bytes = sqm_files::read(&self.0.join(file), MAX);
        bytes.context("cannot read").map_err(Failure::Usage)
    }
}
