//! TLS with a self-signed certificate, by rustls and rcgen.

use std::io;
use std::sync::Arc;

use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::{Error, socket};

/// A certificate and its private key, both in DER; the key in PKCS #8.
#[derive(Clone)]
pub struct Certificate {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Certificate {
    /// A stored certificate with its key.
    pub fn of(certificate: Vec<u8>, key: Vec<u8>) -> Self {
        Self { certificate, key }
    }

    /// A new self-signed certificate for this host's name and `localhost`.
    ///
    /// # Errors
    /// If the system has no random numbers for the key.
    pub fn self_signed() -> Result<Self, Error> {
        let names = vec![socket::host_name(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names)
            .map_err(|e| Error::system("make a certificate", io::Error::other(e)))?;
        Ok(Self {
            certificate: made.cert.der().to_vec(),
            key: made.signing_key.serialize_der(),
        })
    }

    /// The certificate. It is public.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// The private key. Other users must not be able to read it.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// The configuration of a TLS server for these protocols (ALPN, RFC 7301).
    ///
    /// # Errors
    /// If certificate or key are not valid, or do not belong together.
    pub fn server(&self, protocols: &[&[u8]]) -> Result<ServerConfig, Error> {
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.clone()));
        let certificate = CertificateDer::from(self.certificate.clone());
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| {
                config
                    .with_no_client_auth()
                    .with_single_cert(vec![certificate], key)
            })
            .map_err(|e| Error::system("set up TLS", io::Error::other(e)))?;
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        Ok(config)
    }
}
