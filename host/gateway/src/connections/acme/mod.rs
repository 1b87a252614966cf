//! A certificate from a server of ACME (RFC 8555): ordered when there is none, and again when a third of its time is left. It is written
//! into the file from which certificates are shown; the one before stays there until then. The server looks at the gateway's own port
//! whether a name leads here (TLS-ALPN-01, RFC 8737).
//!
//! | file | what |
//! |---|---|
//! | `kept` | the account and the certificate on the disk |
//! | `challenges` | what the server is shown when it looks |
//! | `order` | one certificate, from the order to the file |
//! | `client` | HTTP to the server |

mod challenges;
mod client;
mod kept;
mod order;

pub(super) use challenges::{ACME_TLS, Challenges};

use crate::config::AcmeConfig;
use karman_types::{TaskError, format_duration};
use kept::{Held, Kept};
use rustls::RootCertStore;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{sleep, timeout};

/// How long one certificate may take.
const ORDER: Duration = Duration::from_secs(300);
/// How long to wait after a first failure; twice as long after each further one. Let's Encrypt allows five failures an hour.
const AGAIN: Duration = Duration::from_secs(300);
/// The longest wait after a failure.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
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
}

impl Acme {
    /// Reads what it needs to trust the server.
    ///
    /// # Errors
    /// `invalid` when the folder cannot be had, or the roots do not read.
    pub(super) fn open(config: &AcmeConfig) -> Result<Self, TaskError> {
        Ok(Self {
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
        let mut failures = 0;
        loop {
            let wait = match self.see_to_it().await {
                Ok(wait) => {
                    failures = 0;
                    wait
                }
                Err(error) => {
                    failures += 1;
                    let wait = pause(failures);
                    tracing::error!(
                        %error, again_in = format_duration(wait),
                        "there is no new certificate; the one before stays, if there is one"
                    );
                    wait
                }
            };
            sleep(wait).await;
        }
    }

    /// Gets a certificate if it is time to; how long nothing is to be done.
    async fn see_to_it(&self) -> Result<Duration, AcmeError> {
        let held = match self.with_files(Kept::certificate).await {
            // What does not read is no reason to go without: a good one takes its place.
            Err(error) => {
                tracing::warn!(%error, "another certificate is ordered");
                None
            }
            Ok(held) => held,
        };
        if let Some(wait) = held.and_then(|held| self.holds(&held)) {
            return Ok(wait);
        }
        let (names, directory) = (self.config.names.join(", "), &self.config.directory);
        tracing::info!(names, directory, "a certificate is ordered");
        let got = timeout(ORDER, self.get()).await;
        got.unwrap_or_else(|_| {
            let directory = directory.clone();
            Err(AcmeError::Slow { directory })
        })?;
        tracing::info!(names, "a new certificate is there");
        let held = self.with_files(Kept::certificate).await?;
        // One that has to go at once is not ordered again and again.
        held.and_then(|held| self.holds(&held)).ok_or(AcmeError::Useless)
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

/// How long to wait after so many failures in a row.
fn pause(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    AGAIN.saturating_mul(doubled).min(LONGEST)
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
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

    #[test]
    fn who_fails_again_and_again_waits_longer_up_to_six_hours() {
        let minutes = |failures| pause(failures).as_secs() / 60;
        assert_eq!([1, 2, 3, 4].map(minutes), [5, 10, 20, 40]);
        assert_eq!((minutes(10), minutes(1_000)), (360, 360));
        // Within an hour there are fewer than the five failures that Let's Encrypt allows.
        let tries = (1..).scan(0, |passed, failures| {
            *passed += pause(failures).as_secs();
            Some(*passed)
        });
        assert!(tries.take_while(|passed| *passed < 3600).count() < 5);
    }
}
