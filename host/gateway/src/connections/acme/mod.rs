//! A certificate from a server of ACME (RFC 8555): ordered when there is none, and again when a third of its time is left. It is written
//! into the file from which certificates are shown; the one before stays there until then. The server looks at the gateway's own port
//! whether a name leads here (TLS-ALPN-01, RFC 8737).
//!
//! | file | what |
//! |---|---|
//! | `kept` | the account and the certificate on the disk |
//! | `tries` | how long to wait after what was in vain |
//! | `challenges` | what the server is shown when it looks |
//! | `order` | one certificate, from the order to the file |
//! | `client`, `binding` | HTTP to the server, and an account that it knows already |

mod binding;
mod challenges;
mod client;
mod kept;
mod order;
mod tries;

pub(super) use challenges::{ACME_TLS, Challenges};

use crate::config::AcmeConfig;
use instant_acme::ExternalAccountKey;
use karman_mesh::wall_clock;
use karman_types::{TaskError, format_duration};
use kept::{Held, Kept};
use rustls::RootCertStore;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tries::Tries;

/// How long one certificate may take.
const ORDER: Duration = Duration::from_secs(300);
/// The longest time until it is looked again whether the certificate is still good: clocks are set, files are changed.
const LOOK: Duration = Duration::from_secs(3600);

/// Why there is no new certificate.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum AcmeError {
    /// The server was not understood, or refused something.
    #[error(
        "{directory}: {why}; look whether this machine reaches it (`gateway.acme.directory`), and name its roots in \
         `gateway.acme.ca` where its certificate is a private one's"
    )]
    Server {
        /// Its directory.
        directory: String,
        /// What it said.
        why: String,
    },
    /// The server does not find this gateway under a name.
    #[error(
        "`gateway.acme.names`: {name}: {why}; its port 443 has to lead to this gateway, for the server to see"
    )]
    Refused {
        /// The name.
        name: String,
        /// What it said.
        why: String,
    },
    /// The server does not take the account that is kept.
    #[error("{}: the server refuses this account: {why}; remove the file to have another one made", file.display())]
    Account {
        /// Where it is kept.
        file: PathBuf,
        /// What it said.
        why: String,
    },
    /// The server takes only those who have an account with it already.
    #[error(
        "{directory}: {why}; name your account there in `gateway.acme.external-account`: the id of its key, and a file with the key"
    )]
    External {
        /// Its directory.
        directory: String,
        /// What it said.
        why: String,
    },
    /// What is kept does not read, or cannot be written.
    #[error("`gateway.acme.folder`: {}: {why}; mend or remove the file", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// It took too long.
    #[error(
        "{directory}: no certificate after {}; it is tried again",
        format_duration(ORDER)
    )]
    Slow {
        /// The server's directory.
        directory: String,
    },
    /// The clock, or the server's, is wrong; or it signs other names than those that it was asked for.
    #[error(
        "the new certificate has to be replaced already: look at this machine's clock (`karman doctor`), and at `gateway.acme.names`"
    )]
    Useless,
    /// Something here failed.
    #[error("a certificate cannot be ordered: {0}")]
    Own(String),
}

/// Who sees to it that there is a certificate.
pub(super) struct Acme {
    config: AcmeConfig,
    kept: Kept,
    challenges: Challenges,
    roots: Arc<RootCertStore>,
    /// What a new account is bound to.
    external: Option<ExternalAccountKey>,
}

impl Acme {
    /// Reads what it needs to trust the server.
    ///
    /// # Errors
    /// `invalid` when the folder cannot be had, or the roots or the key of an external account do not read.
    pub(super) fn open(config: &AcmeConfig) -> Result<Self, TaskError> {
        Ok(Self {
            external: config.external_account.as_ref().map(binding::read).transpose()?,
            kept: Kept::open(config)?,
            challenges: Challenges::default(),
            roots: Arc::new(client::roots(config.ca.as_deref())?),
            config: config.clone(),
        })
    }

    /// Where the certificate is.
    pub(super) const fn kept(&self) -> &Kept {
        &self.kept
    }

    /// What the server is shown when it looks.
    pub(super) const fn challenges(&self) -> &Challenges {
        &self.challenges
    }

    /// Keeps a certificate there that is good, for as long as the gateway runs.
    pub(super) async fn keep(self) {
        let mut tries = self.tries().await;
        let mut again = Instant::now() + tries.left(now());
        loop {
            let left = again.saturating_duration_since(Instant::now());
            let wait = match self.good_for().await {
                Some(wait) => wait,
                None if !left.is_zero() => {
                    tracing::warn!(
                        in_vain = tries.count(), again_in = format_duration(left), file = %self.kept.tries_file().display(),
                        "no certificate is ordered yet: it was tried in vain before; remove the file and restart to try at once"
                    );
                    left
                }
                None => {
                    let this = tries.another(now());
                    match self.order(this.clone()).await {
                        Ok(wait) => {
                            tries = self.kept.untried();
                            wait
                        }
                        Err(error) => {
                            let wait = this.pause();
                            (tries, again) = (this, Instant::now() + wait);
                            tracing::error!(
                                %error, again_in = format_duration(wait),
                                "there is no new certificate; the one before stays, if there is one"
                            );
                            wait
                        }
                    }
                }
            };
            sleep(wait).await;
        }
    }

    /// What was tried in vain before the gateway was started.
    async fn tries(&self) -> Tries {
        let tries = self.with_files(Kept::tries).await;
        tries.unwrap_or_else(|error| {
            tracing::warn!(%error, "it counts as tried for the first time");
            self.kept.untried()
        })
    }

    /// How long the certificate that is there is good; nothing where one has to be ordered.
    async fn good_for(&self) -> Option<Duration> {
        match self.with_files(Kept::certificate).await {
            Ok(held) => held.and_then(|held| self.holds(&held)),
            // What does not read is no reason to go without: a good one takes its place.
            Err(error) => {
                tracing::warn!(%error, "another certificate is to be ordered");
                None
            }
        }
    }

    /// Gets a certificate; how long it is good.
    async fn order(&self, this: Tries) -> Result<Duration, AcmeError> {
        // It counts before anything is asked for: who is ended meanwhile has tried, too.
        let tried = this.clone();
        self.with_files(move |kept| kept.keep_tries(&tried)).await?;
        let (names, directory) = (self.config.names.join(", "), &self.config.directory);
        tracing::info!(names, directory, "a certificate is ordered");
        let got = timeout(ORDER, self.get()).await;
        got.unwrap_or_else(|_| {
            let directory = directory.clone();
            Err(AcmeError::Slow { directory })
        })?;
        tracing::info!(names, "a new certificate is there");
        if let Some(wait) = self.good_for().await {
            return Ok(wait);
        }
        // One that has to go at once is not ordered again and again.
        self.with_files(move |kept| kept.keep_tries(&this)).await?;
        Err(AcmeError::Useless)
    }

    /// How long nothing is to be done while this certificate is there; nothing where it has to be replaced.
    fn holds(&self, held: &Held) -> Option<Duration> {
        let wait = due(held, &self.config.names).saturating_sub(now());
        let wait = u64::try_from(wait).ok().filter(|wait| *wait > 0)?;
        Some(Duration::from_secs(wait).min(LOOK))
    }

    /// Does something with the files where that may take its time.
    async fn with_files<T: Send + 'static>(
        &self,
        step: impl FnOnce(&Kept) -> Result<T, AcmeError> + Send + 'static,
    ) -> Result<T, AcmeError> {
        let kept = self.kept.clone();
        let done = tokio::task::spawn_blocking(move || step(&kept)).await;
        done.unwrap_or_else(|error| Err(AcmeError::Own(error.to_string())))
    }
}

/// When a certificate has to be replaced, in seconds since 1970: when a third of its time is left; at once where it is not for these
/// names.
fn due(held: &Held, names: &[String]) -> i64 {
    let is_for = |name: &String| held.names.iter().any(|held| held.eq_ignore_ascii_case(name));
    match names.iter().all(is_for) {
        true => held.until - (held.until - held.from) / 3,
        false => i64::MIN / 2,
    }
}

fn now() -> i64 {
    let since = wall_clock();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_replaced_when_a_third_of_its_time_is_left_or_names_have_changed() {
        let held = Held {
            from: 1_000,
            until: 1_900,
            names: vec!["gw.example".into(), "www.gw.example".into()],
        };
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|&name| name.into()).collect() };
        assert_eq!(due(&held, &names(&["gw.example"])), 1_600);
        assert_eq!(due(&held, &names(&["GW.example", "www.gw.example"])), 1_600);
        assert!(due(&held, &names(&["gw.example", "other.example"])) < 0);
    }

    #[tokio::test]
    async fn what_was_in_vain_is_known_after_a_restart_and_what_was_mended_is_tried_at_once() {
        let folder = tempfile::tempdir().unwrap();
        // Nobody listens there.
        let config = AcmeConfig {
            directory: "https://127.0.0.1:1/directory".into(),
            ..kept::tests::config(folder.path())
        };
        let acme = Acme::open(&config).unwrap();
        let tries = acme.tries().await;
        assert_eq!(tries.left(now()), Duration::ZERO);
        let error = acme.order(tries.another(now())).await.unwrap_err();
        assert!(matches!(error, AcmeError::Server { .. }), "{error}");
        let tries = Acme::open(&config).unwrap().tries().await;
        assert_eq!((tries.count(), tries.pause().as_secs()), (1, 300));

        let mended = AcmeConfig {
            directory: "https://127.0.0.1:2/directory".into(),
            ..config
        };
        let tries = Acme::open(&mended).unwrap().tries().await;
        assert_eq!((tries.count(), tries.left(now())), (0, Duration::ZERO));
    }
}
