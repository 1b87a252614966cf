//! What must survive a restart: the account, the certificate with its key, and what was tried in vain, each in a file that nobody else
//! may read.

use super::AcmeError;
use super::tries::Tries;
use crate::config::{AcmeConfig, TlsConfig};
use instant_acme::AccountCredentials;
use karman_types::TaskError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use x509_parser::extensions::GeneralName;

/// The folder of `[gateway.acme]`.
#[derive(Clone, Debug)]
pub(in crate::connections) struct Kept {
    account: PathBuf,
    certificate: PathBuf,
    tries: PathBuf,
    /// The digest of the table.
    table: String,
}

/// How long a certificate holds, in seconds since 1970, and for which names.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Held {
    pub(super) from: i64,
    pub(super) until: i64,
    pub(super) names: Vec<String>,
}

impl Kept {
    /// Makes the folder, if need be.
    ///
    /// # Errors
    /// `invalid` when it cannot be had.
    pub(in crate::connections) fn open(config: &AcmeConfig) -> Result<Self, TaskError> {
        let folder = &config.folder;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| {
            TaskError::invalid(format!("{}: {error}", folder.display())).with_field("gateway.acme.folder")
        })?;
        // An account is one server's; another directory has another one.
        let server = blake3::hash(config.directory.as_bytes()).to_hex();
        Ok(Self {
            account: folder.join(format!("account-{}.json", &server[..16])),
            certificate: folder.join("certificate.pem"),
            tries: folder.join("tries.json"),
            table: blake3::hash(&serde_json::to_vec(config).unwrap_or_default())
                .to_hex()
                .to_string(),
        })
    }

    /// The file that is shown: the key stands before the certificate in it, so that the two always go together.
    pub(in crate::connections) fn tls(&self) -> TlsConfig {
        TlsConfig {
            certificate: self.certificate.clone(),
            key: self.certificate.clone(),
        }
    }

    /// Where the account is.
    pub(super) fn account_file(&self) -> &Path {
        &self.account
    }

    /// Where it is kept how often it was tried in vain.
    pub(super) fn tries_file(&self) -> &Path {
        &self.tries
    }

    /// The account with the server, if there is one.
    pub(super) fn account(&self) -> Result<Option<AccountCredentials>, AcmeError> {
        let Some(text) = read(&self.account)? else {
            return Ok(None);
        };
        let account = serde_json::from_slice(&text).map_err(|error| broken(&self.account, &error))?;
        Ok(Some(account))
    }

    /// Keeps a new account.
    pub(super) fn keep_account(&self, account: &AccountCredentials) -> Result<(), AcmeError> {
        let text = serde_json::to_vec(account).map_err(|error| broken(&self.account, &error))?;
        write(&self.account, &text)
    }

    /// Orders of this table in a row of which nothing came yet.
    pub(super) fn tries(&self) -> Result<Tries, AcmeError> {
        let Some(text) = read(&self.tries)? else {
            return Ok(self.untried());
        };
        let tries: Tries = serde_json::from_slice(&text).map_err(|error| broken(&self.tries, &error))?;
        match tries.are_for(&self.table) {
            true => Ok(tries),
            false => Ok(self.untried()),
        }
    }

    /// No orders of this table yet.
    pub(super) fn untried(&self) -> Tries {
        Tries::none(&self.table)
    }

    /// Keeps them until there is a certificate.
    pub(super) fn keep_tries(&self, tries: &Tries) -> Result<(), AcmeError> {
        let text = serde_json::to_vec(tries).map_err(|error| broken(&self.tries, &error))?;
        write(&self.tries, &text)
    }

    /// Puts a new certificate in the place of the one before; nothing was in vain then.
    pub(super) fn keep_certificate(&self, key_and_chain: &str) -> Result<(), AcmeError> {
        // What cannot be shown takes nothing's place.
        held(key_and_chain.as_bytes()).map_err(|why| broken(&self.certificate, &why))?;
        remove(&self.tries).map_err(|error| broken(&self.tries, &error))?;
        write(&self.certificate, key_and_chain.as_bytes())
    }

    /// The certificate that is there, if there is one.
    pub(super) fn certificate(&self) -> Result<Option<Held>, AcmeError> {
        let Some(text) = read(&self.certificate)? else {
            return Ok(None);
        };
        held(&text)
            .map(Some)
            .map_err(|why| broken(&self.certificate, &why))
    }
}

/// What the first certificate of a file says, where its key is there, too.
fn held(text: &[u8]) -> Result<Held, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| format!("its key: {error}"))?;
    let first = CertificateDer::from_pem_slice(text).map_err(|error| error.to_string())?;
    let (_, certificate) = x509_parser::parse_x509_certificate(&first).map_err(|error| error.to_string())?;
    let names = certificate
        .subject_alternative_name()
        .map_err(|error| error.to_string())?;
    let names = names.map(|extension| &extension.value.general_names[..]);
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    let validity = certificate.validity();
    Ok(Held {
        from: validity.not_before.timestamp(),
        until: validity.not_after.timestamp(),
        names: names.unwrap_or_default().iter().filter_map(dns).collect(),
    })
}

fn broken(file: &Path, why: &dyn std::fmt::Display) -> AcmeError {
    AcmeError::File {
        file: file.to_owned(),
        why: why.to_string(),
    }
}

fn read(file: &Path) -> Result<Option<Vec<u8>>, AcmeError> {
    match fs::read(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(broken(file, &error)),
    }
}

/// Removes a file that need not be there.
fn remove(file: &Path) -> std::io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Writes a file at once: who reads it finds the old text or the new one, and after a power cut what was written last.
fn write(file: &Path, text: &[u8]) -> Result<(), AcmeError> {
    let beside = file.with_extension("new");
    let written = || -> std::io::Result<()> {
        // One that was left from before may have other rights.
        remove(&beside)?;
        let mut new = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&beside)?;
        new.write_all(text)?;
        new.sync_all()?;
        fs::rename(&beside, file)?;
        // Where a file lies is kept in its folder.
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or_else(|| Path::new(".")))?.sync_all()
    };
    written().map_err(|error| broken(file, &error))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use std::os::unix::fs::PermissionsExt;

    /// A table whose folder is within this one.
    pub(in crate::connections::acme) fn config(folder: &Path) -> AcmeConfig {
        AcmeConfig {
            names: vec!["localhost".into()],
            contact: None,
            directory: "https://ca.example/directory".into(),
            external_account: None,
            folder: folder.join("acme"),
            ca: None,
            terms_agreed: true,
        }
    }

    #[test]
    fn a_certificate_is_kept_with_its_key_for_nobody_else_to_read() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::open(&config(folder.path())).unwrap();
        assert_eq!(kept.certificate().unwrap(), None);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "gw.example".to_owned()]);
        let made = made.unwrap();
        let text = made.key_pair.serialize_pem() + &made.cert.pem();
        kept.keep_certificate(&text).unwrap();
        let held = kept.certificate().unwrap().unwrap();
        assert_eq!(held.names, ["localhost", "gw.example"]);
        assert!(held.from < held.until);
        let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&kept.certificate), mode(&folder.path().join("acme"))),
            (0o600, 0o700)
        );
        // What is none does not take its place.
        assert!(kept.keep_certificate("-----").is_err());
        assert_eq!(kept.certificate().unwrap(), Some(held));
    }

    #[test]
    fn what_was_tried_in_vain_is_forgotten_when_there_is_a_certificate_or_another_table() {
        let folder = tempfile::tempdir().unwrap();
        let ours = config(folder.path());
        let kept = Kept::open(&ours).unwrap();
        assert_eq!(kept.tries().unwrap(), kept.untried());
        let tries = kept.untried().another(1_000).another(2_000);
        kept.keep_tries(&tries).unwrap();
        assert_eq!(Kept::open(&ours).unwrap().tries().unwrap(), tries);
        let mended = AcmeConfig {
            names: vec!["gw.example".into()],
            ..ours
        };
        assert_eq!(Kept::open(&mended).unwrap().tries().unwrap().count(), 0);

        // What is no certificate was in vain.
        assert!(kept.keep_certificate("-----").is_err());
        assert_eq!(kept.tries().unwrap(), tries);
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        kept.keep_certificate(&(made.key_pair.serialize_pem() + &made.cert.pem()))
            .unwrap();
        assert_eq!(kept.tries().unwrap(), kept.untried());
    }

    #[test]
    fn an_account_belongs_to_one_server() {
        let folder = tempfile::tempdir().unwrap();
        let (ours, other) = (config(folder.path()), "https://other.example/directory");
        let kept = Kept::open(&ours).unwrap();
        let key = rcgen::KeyPair::generate().unwrap().serialize_der();
        let key = URL_SAFE_NO_PAD.encode(key);
        let text = format!(
            "{{\"id\":\"https://ca.example/1\",\"key_pkcs8\":\"{key}\",\"directory\":\"https://ca.example/directory\"}}"
        );
        let account: AccountCredentials = serde_json::from_str(&text).unwrap();
        kept.keep_account(&account).unwrap();
        assert!(kept.account().unwrap().is_some());
        let elsewhere = AcmeConfig {
            directory: other.into(),
            ..ours.clone()
        };
        assert!(Kept::open(&elsewhere).unwrap().account().unwrap().is_none());
        fs::write(&kept.account, "{").unwrap();
        let error = Kept::open(&ours).unwrap().account().err().unwrap().to_string();
        assert!(error.contains("account-"), "{error}");
    }
}
