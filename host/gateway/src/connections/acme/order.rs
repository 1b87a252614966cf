//! One certificate, from the order to the file.

use super::challenges::{Answering, Challenges};
use super::client::Https;
use super::kept::Kept;
use super::{Acme, AcmeError};
use crate::config::AcmeConfig;
use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use std::time::Duration;

/// How long the server may take to look at the names, and to sign.
const PATIENCE: RetryPolicy = RetryPolicy::new().timeout(Duration::from_secs(120));

impl Acme {
    /// Gets a certificate, and keeps it.
    ///
    /// # Errors
    /// What the server or the disk says.
    pub(super) async fn get(&self) -> Result<(), AcmeError> {
        let server = |error: Error| AcmeError::Server {
            directory: self.config.directory.clone(),
            why: words(&error),
        };
        let account = self.account().await?;
        let names: Vec<Identifier> = self.config.names.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&names)).await.map_err(server)?;
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

    /// The account with the server: the one that is kept, else a new one.
    async fn account(&self) -> Result<Account, AcmeError> {
        let AcmeConfig {
            directory, contact, ..
        } = &self.config;
        let server = |error: Error| AcmeError::Server {
            directory: directory.clone(),
            why: words(&error),
        };
        let https = Https::new(self.roots.clone()).map_err(|error| AcmeError::Own(error.to_string()))?;
        let builder = Account::builder_with_http(Box::new(https));
        if let Some(kept) = self.with_files(Kept::account).await? {
            return builder.from_credentials(kept).await.map_err(server);
        }
        let contact = contact.as_ref().map(|mail| format!("mailto:{mail}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let wanted = NewAccount {
            contact: &contact,
            terms_of_service_agreed: self.config.terms_agreed,
            only_return_existing: false,
        };
        let made = builder.create(&wanted, directory.clone(), None).await;
        let (account, credentials) = made.map_err(server)?;
        self.with_files(move |kept| kept.keep_account(&credentials))
            .await?;
        Ok(account)
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
