//! One certificate, from the order to the file.

use super::challenges::{Answering, Challenges};
use super::client::Https;
use super::kept::Kept;
use super::{Acme, AcmeError};
use crate::config::AcmeConfig;
use instant_acme::{
    Account, AccountBuilder, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder,
    Order, OrderStatus, RetryPolicy,
};
use std::time::Duration;

/// How long the server may take to look at the names, and to sign.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

/// The server does not know the account (RFC 8555, section 6.7, like those below).
const LOST: &str = "accountDoesNotExist";
/// The account may not do this: it was closed, say.
const UNAUTHORIZED: &str = "unauthorized";
/// What was sent has not the form that it should have.
const MALFORMED: &str = "malformed";
/// A new account has to be bound to one that the server knows.
const EXTERNAL: &str = "externalAccountRequired";

impl Acme {
    /// Gets a certificate, and keeps it.
    ///
    /// # Errors
    /// What the server or the disk says.
    pub(super) async fn get(&self) -> Result<(), AcmeError> {
        let server = |error: Error| self.server(&error);
        let names: Vec<Identifier> = self.config.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = self.begun(&NewOrder::new(&names)).await?;
        let answering = challenged(&mut order, &self.challenges, &server).await?;
        let ready = order.poll_ready(&PATIENCE).await;
        drop(answering);
        match ready {
            Ok(OrderStatus::Ready) => {}
            Ok(_) => return Err(refused(&mut order, server(Error::Str("a valid order"))).await),
            Err(error @ Error::Api(_)) => return Err(refused(&mut order, server(error)).await),
            Err(error) => return Err(server(error)),
        }
        let key = order.finalize().await.map_err(server)?;
        let chain = order.poll_certificate(&PATIENCE).await.map_err(server)?;
        self.with_files(move |kept| kept.keep_certificate(&format!("{}\n{chain}", key.trim_end())))
            .await
    }

    /// An order by the account that is kept; by a new one where there is none, or the server has lost it.
    async fn begun(&self, wanted: &NewOrder<'_>) -> Result<Order, AcmeError> {
        let Some(kept) = self.with_files(Kept::account).await? else {
            let account = self.new_account().await?;
            return account
                .new_order(wanted)
                .await
                .map_err(|error| self.server(&error));
        };
        let account = self.speaker()?.from_credentials(kept).await;
        let account = account.map_err(|error| self.server(&error))?;
        let error = match account.new_order(wanted).await {
            Ok(order) => return Ok(order),
            Err(error) => error,
        };
        match problem(&error) {
            Some(LOST) => {
                tracing::warn!(
                    directory = self.config.directory,
                    "the server has lost the account: another one is made"
                );
                let account = self.new_account().await?;
                account
                    .new_order(wanted)
                    .await
                    .map_err(|error| self.server(&error))
            }
            Some(UNAUTHORIZED) => Err(AcmeError::Account {
                file: self.kept().account_file().to_owned(),
                why: words(&error),
            }),
            _ => Err(self.server(&error)),
        }
    }

    /// Makes an account with the server, and keeps it in the place of the one before.
    async fn new_account(&self) -> Result<Account, AcmeError> {
        let AcmeConfig {
            directory, contact, ..
        } = &self.config;
        let contact = contact.as_ref().map(|mail| format!("mailto:{mail}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: self.config.terms_agreed,
            only_return_existing: false,
        };
        let speaker = self.speaker()?;
        let made = speaker
            .create(&wanted, directory.clone(), self.external.as_ref())
            .await;
        let (account, credentials) = made.map_err(|error| self.no_account(&error))?;
        self.with_files(move |kept| kept.keep_account(&credentials))
            .await?;
        Ok(account)
    }

    /// Who speaks to the server.
    fn speaker(&self) -> Result<AccountBuilder, AcmeError> {
        let https = Https::new(self.roots.clone()).map_err(|error| AcmeError::Own(error.to_string()))?;
        Ok(Account::builder_with_http(Box::new(https)))
    }

    fn server(&self, error: &Error) -> AcmeError {
        AcmeError::Server {
            directory: self.config.directory.clone(),
            why: words(error),
        }
    }

    /// Why the server makes no account. What it says of one that is bound is most likely said of what it is bound to.
    fn no_account(&self, error: &Error) -> AcmeError {
        let is_bound = self.external.is_some();
        match problem(error) {
            Some(EXTERNAL) => {}
            Some(UNAUTHORIZED | MALFORMED) if is_bound => {}
            _ => return self.server(error),
        }
        AcmeError::External {
            directory: self.config.directory.clone(),
            why: words(error),
        }
    }
}

/// Has the server look at every name that it does not know yet; what answers it meanwhile.
async fn challenged(
    order: &mut Order,
    challenges: &Challenges,
    server: &impl Fn(Error) -> AcmeError,
) -> Result<Vec<Answering>, AcmeError> {
    let mut answering = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(next) = authorizations.next().await {
        let mut authorization = next.map_err(server)?;
        let name = authorization.identifier().to_string();
        match authorization.status {
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            other => {
                let why = format!("its authorization is {other:?}").to_lowercase();
                return Err(AcmeError::Refused { name, why });
            }
        }
        let Some(mut challenge) = authorization.challenge(ChallengeType::TlsAlpn01) else {
            let why = "the server offers no challenge of the kind TLS-ALPN-01".into();
            return Err(AcmeError::Refused { name, why });
        };
        let digest = challenge.key_authorization().digest();
        answering.push(challenges.answer(&name, digest.as_ref())?);
        challenge.set_ready().await.map_err(server)?;
    }
    Ok(answering)
}

/// The name that the server did not find here, and what it says of it; where it names none, what went wrong otherwise.
async fn refused(order: &mut Order, otherwise: AcmeError) -> AcmeError {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let Ok(state) = authorization.refresh().await else {
            continue;
        };
        let mut problems = state
            .challenges
            .iter()
            .filter_map(|challenge| challenge.error.as_ref());
        if let Some(problem) = problems.next() {
            let why = problem.to_string();
            return AcmeError::Refused { name, why };
        }
    }
    otherwise
}

/// An error with what it comes from.
fn words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

/// What the server calls what is wrong, where it has a name of RFC 8555 for it.
fn problem(error: &Error) -> Option<&str> {
    match error {
        Error::Api(problem) => problem
            .r#type
            .as_deref()?
            .strip_prefix("urn:ietf:params:acme:error:"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ExternalAccount;
    use crate::connections::acme::kept;
    use instant_acme::Problem;

    fn says(kind: &str) -> Error {
        Error::Api(Problem {
            r#type: Some(format!("urn:ietf:params:acme:error:{kind}")),
            detail: Some("no".into()),
            status: None,
            subproblems: Vec::new(),
        })
    }

    #[test]
    fn who_is_asked_for_an_external_account_is_told_where_to_name_it() {
        let folder = tempfile::tempdir().unwrap();
        let config = kept::tests::config(folder.path());
        let unbound = Acme::open(&config).unwrap();
        let key = folder.path().join("binding.key");
        std::fs::write(&key, "AQID").unwrap();
        let bound = Acme::open(&AcmeConfig {
            external_account: Some(ExternalAccount {
                key_id: "kid-1".into(),
                key,
            }),
            ..config
        });
        let bound = bound.unwrap();
        let hints = |acme: &Acme, kind: &str| {
            let error = acme.no_account(&says(kind)).to_string();
            assert!(error.contains("no ("), "{error}");
            error.contains("gateway.acme.external-account")
        };
        assert!(hints(&unbound, EXTERNAL) && !hints(&unbound, MALFORMED));
        assert!(hints(&bound, UNAUTHORIZED) && hints(&bound, MALFORMED));
        assert!(!hints(&unbound, "rateLimited") && !hints(&bound, "rateLimited"));
    }

    #[test]
    fn what_the_server_has_a_name_for_is_told_apart() {
        assert_eq!(problem(&says("accountDoesNotExist")), Some(LOST));
        assert_eq!(problem(&Error::Crypto), None);
    }
}
