use rustls::pki_types::DnsName;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::PathBuf;

/// Names of one certificate.
const MOST_NAMES: usize = 100;

/// The table `[gateway.acme]`: a certificate that the gateway gets, and renews, from a server of ACME (RFC 8555).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AcmeConfig {
    /// The names that it is for, such as `gateway.example`. Port 443 of each has to lead to this gateway: the server looks there
    /// (TLS-ALPN-01, RFC 8737).
    #[serde(deserialize_with = "as_in_certificates")]
    pub names: Vec<String>,
    /// A mail address to which the server may write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<String>,
    /// The server's directory. Default: that of Let's Encrypt.
    #[serde(default = "lets_encrypt")]
    pub directory: String,
    /// An account with the server, where it takes only those who have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_account: Option<ExternalAccount>,
    /// Where the account and the certificate are kept with their keys; nobody else may read them.
    pub folder: PathBuf,
    /// The roots by which the server's own certificate is judged, PEM. Default: those that browsers trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Whether you agree to the server's terms of service, which it asks of everybody.
    #[serde(default)]
    pub terms_agreed: bool,
}

/// The table `[gateway.acme.external-account]`: an account with the server to which the one that the gateway makes there is bound
/// (RFC 8555, section 7.3.4). Where a server asks for one, it shows both of these.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExternalAccount {
    /// The name of the key.
    pub key_id: String,
    /// The file with the key (HMAC) in base64url.
    pub key: PathBuf,
}

fn lets_encrypt() -> String {
    "https://acme-v02.api.letsencrypt.org/directory".into()
}

/// Names as certificates have them, each once: `Gateway.Example.` stands there as `gateway.example`.
fn as_in_certificates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let mut names: Vec<String> = Vec::new();
    for given in Vec::<String>::deserialize(deserializer)? {
        let name = given.strip_suffix('.').unwrap_or(&given).to_ascii_lowercase();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

impl AcmeConfig {
    /// What is wrong with it: the key, and why.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.names.is_empty() || self.names.len() > MOST_NAMES {
            let count = self.names.len();
            return Err(("acme.names", format!("has {count} names, not 1 to {MOST_NAMES}")));
        }
        let is_name = |name: &&String| {
            !name.contains('*') && !name.ends_with('.') && DnsName::try_from(name.as_str()).is_ok()
        };
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
        if self
            .external_account
            .as_ref()
            .is_some_and(|account| account.key_id.is_empty())
        {
            return Err((
                "acme.external-account.key-id",
                "is empty; the server shows it beside the key".into(),
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
