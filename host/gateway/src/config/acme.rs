use rustls::pki_types::DnsName;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Names of one certificate.
const MOST_NAMES: usize = 100;

/// The table `[gateway.acme]`: a certificate that the gateway gets, and renews, from a server of ACME (RFC 8555).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AcmeConfig {
    /// The names that it is for, such as `gateway.example`. Port 443 of each has to lead to this gateway: the server looks there
    /// (TLS-ALPN-01, RFC 8737).
    pub names: Vec<String>,
    /// A mail address to which the server may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// The server's directory. Default: that of Let's Encrypt.
    #[serde(default = "lets_encrypt")]
    pub directory: String,
    /// Where the account and the certificate are kept with their keys; nobody else may read them.
    pub folder: PathBuf,
    /// The roots by which the server's own certificate is judged, PEM. Default: those that browsers trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Whether you agree to the server's terms of service, which it asks of everybody.
    #[serde(default)]
    pub terms_agreed: bool,
}

fn lets_encrypt() -> String {
    "https://acme-v02.api.letsencrypt.org/directory".into()
}

impl AcmeConfig {
    /// What is wrong with it: the key, and why.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.names.is_empty() || self.names.len() > MOST_NAMES {
            let count = self.names.len();
            return Err(("acme.names", format!("has {count} names, not 1 to {MOST_NAMES}")));
        }
        let is_name = |name: &&String| !name.contains('*') && DnsName::try_from(name.as_str()).is_ok();
        if let Some(name) = self.names.iter().find(|name| !is_name(name)) {
            return Err((
                "acme.names",
                format!("has `{name}`; a name is written `gateway.example`, without a wildcard"),
            ));
        }
        if !self.directory.starts_with("https://") || self.directory.parse::<http::Uri>().is_err() {
            return Err((
                "acme.directory",
                format!("is `{}`; it has to begin with https://", self.directory),
            ));
        }
        if let Some(contact) = &self.contact
            && (!contact.contains('@') || contact.contains([':', ' ', ',']))
        {
            return Err((
                "acme.contact",
                format!("is `{contact}`; a contact is one mail address, as `ops@gateway.example`"),
            ));
        }
        match self.terms_agreed {
            true => Ok(()),
            false => Err((
                "acme.terms-agreed",
                "is not true; read the terms of service of the server, which its directory names".into(),
            )),
        }
    }
}
