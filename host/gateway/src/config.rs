mod acme;
mod network;
mod routes;

pub use acme::{AcmeConfig, ExternalAccount};
pub use network::{Network, NetworkError};
pub use routes::RouteConfig;

use crate::access::{CallerLimits, Right};
use http::HeaderValue;
use karman_node::{NodeConfig, Time};
use karman_package::PublicKey;
use karman_types::{ByteSize, TaskError, from_toml};
use rustls::pki_types::DnsName;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// How long browsers come by TLS alone, where the operator does not say.
const HSTS: Duration = Duration::from_secs(365 * 24 * 3600);

/// The table `[gateway]` of node.toml, each key of which can also be given as `KARMAN_GATEWAY__KEY`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GatewayConfig {
    /// The certificate that it shows; without one it speaks plain HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsConfig>,
    /// A certificate that it gets by itself instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acme: Option<AcmeConfig>,
    /// How long browsers are to come by TLS alone once they have, where it shows a certificate (RFC 6797). `0 s` has them forget it.
    /// Default 365 days.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hsts: Option<Time>,
    /// What takes no token. Default: nothing.
    pub open: Vec<Right>,
    /// How much all callers without a token may do together.
    pub open_limits: CallerLimits,
    /// Keys whose tokens are taken besides those that this node's own key signed.
    pub token_keys: Vec<PublicKey>,
    /// Names that lead here, besides those of this machine and of `acme`: `gateway.example`. Where one is named, and where it listens for
    /// this machine alone, callers without a token have to ask for one of them, or for an address. Default: none.
    pub hosts: Vec<String>,
    /// Reverse proxies in front of it: addresses, and networks such as `10.0.0.0/8`. Only what they say of whom they ask for
    /// (`Forwarded`, `X-Forwarded-For`) is believed. Default: none.
    pub trusted_proxies: Vec<Network>,
    /// Where HTTP plugins answer besides `/http/NAME`. Default: nowhere.
    pub routes: Vec<RouteConfig>,
    /// Origins whose pages may call, such as `https://app.example`. Default: none.
    pub cors: Vec<String>,
    /// What it holds at once.
    pub limits: GatewayLimits,
}

/// PEM files.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TlsConfig {
    /// The certificate, and those between it and its root.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// What the gateway holds at once. Beyond that it refuses, quickly.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GatewayLimits {
    /// Connections. One more takes the place of the one that has asked for nothing for longest, else of the one
    /// whose request has been coming for longest, else of the one that has taken nothing of its answers for longest. Default 4096, or as many
    /// as the system gives descriptors for, less 256.
    pub connections: usize,
    /// How long a connection may stay without a request under way. Default 30 s.
    pub idle: Time,
    /// How long the next bytes of a body may take; what comes slower than 16 KiB a second on the whole is given up. Default 10 s.
    pub body_pause: Time,
    /// The longest body. Default 64 MiB.
    pub body: ByteSize,
    /// Bodies together. Default 512 MiB.
    pub bodies: ByteSize,
    /// Requests that run. Default: 32 for each core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<usize>,
    /// Requests that wait for their turn. Default 256.
    pub waiting: usize,
    /// How long they wait. Default 1 s.
    pub wait: Time,
    /// Requests that wait rather than compute, and so take no place of `at-once`: calls of HTTP plugins, `?wait`, event streams of
    /// workflows, questions about the state of a task or workflow. Default 1024.
    pub beside: usize,
    /// How long a request may take, and how long its caller may take nothing of the answer; so long it also has once the gateway is told to
    /// stop. Default 300 s.
    pub time: Time,
    /// How long the gateway goes on taking callers once it is told to stop, while `/readyz` says no already: the time that the load
    /// balancer needs to see it. Default 0 s.
    pub notice: Time,
    /// How many invalid tokens one address (IPv6: a /64) may send in a second. Beyond that, the gateway refuses tokens from there without
    /// looking at them, unless it has accepted them before. Default 10.
    pub failed_tokens: u32,
}

impl Default for GatewayLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            idle: Time(Duration::from_secs(30)),
            body_pause: Time(Duration::from_secs(10)),
            body: ByteSize::mib(64),
            bodies: ByteSize::mib(512),
            at_once: None,
            waiting: 256,
            wait: Time(Duration::from_secs(1)),
            beside: 1024,
            time: Time(Duration::from_secs(300)),
            notice: Time(Duration::ZERO),
            failed_tokens: 10,
        }
    }
}

impl GatewayConfig {
    /// The table in a node's configuration.
    ///
    /// # Errors
    /// `invalid` for a key that is unknown or a value that does not fit.
    pub fn of(node: &NodeConfig) -> Result<Self, TaskError> {
        let wrong =
            |why: String| TaskError::invalid(format!("[gateway] of node.toml: {why}")).with_field("gateway");
        let text = toml::to_string(&node.gateway).map_err(|error| wrong(error.to_string()))?;
        let config: Self = from_toml(&text).map_err(|error| wrong(error.to_string()))?;
        config
            .check()
            .map_err(|(key, why)| wrong(format!("`{key}` {why}")))?;
        Ok(config)
    }

    /// What browsers are told of TLS, where it is on.
    pub(crate) fn strict_transport(&self) -> Option<HeaderValue> {
        if self.tls.is_none() && self.acme.is_none() {
            return None;
        }
        let time = self.hsts.map_or(HSTS, |time| time.0);
        HeaderValue::try_from(format!("max-age={}", time.as_secs())).ok()
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let limits = &self.limits;
        for (key, value) in [
            ("limits.connections", limits.connections),
            ("limits.at-once", limits.at_once.unwrap_or(1)),
            ("limits.beside", limits.beside),
        ] {
            if value == 0 {
                return Err((key, "is 0; nobody would be served".into()));
            }
        }
        if limits.failed_tokens == 0 {
            return Err((
                "limits.failed-tokens",
                "is 0; nobody would be told what is wrong".into(),
            ));
        }
        if let Some(acme) = &self.acme {
            acme.check()?;
            if self.tls.is_some() {
                let says = "has a certificate of its own to get, and so has `tls`: leave out one of them";
                return Err(("acme", says.into()));
            }
        }
        if limits.bodies < limits.body {
            return Err((
                "limits.bodies",
                format!("is {}, less than one body of {}", limits.bodies, limits.body),
            ));
        }
        let is_name = |host: &&String| DnsName::try_from(host.as_str()).is_ok();
        if let Some(host) = self.hosts.iter().find(|host| !is_name(host)) {
            let says = format!("has `{host}`; a name is written `gateway.example`, without scheme and port");
            return Err(("hosts", says));
        }
        routes::check(&self.routes, &self.hosts)?;
        let whole = |origin: &&String| {
            let rest = origin
                .strip_prefix("https://")
                .or_else(|| origin.strip_prefix("http://"));
            !rest.is_some_and(|host| !host.is_empty() && !host.contains('/'))
        };
        match self.cors.iter().find(whole) {
            Some(origin) => Err((
                "cors",
                format!("has `{origin}`; an origin is written `https://app.example`"),
            )),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACME: &str = "[acme]\nnames = [\"gw.example\"]\nfolder = \"acme\"\n";

    fn read(text: &str) -> Result<GatewayConfig, String> {
        let node = NodeConfig {
            gateway: toml::from_str(text).unwrap(),
            ..NodeConfig::default()
        };
        GatewayConfig::of(&node).map_err(|error| error.message)
    }

    #[test]
    fn nothing_is_open_by_default() {
        let config = read("").unwrap();
        assert!(config.open.is_empty() && config.cors.is_empty() && config.tls.is_none());
    }

    #[test]
    fn a_certificate_comes_from_where_most_get_theirs_unless_said_otherwise() {
        let config = read(&format!(
            "{ACME}terms-agreed = true\ncontact = \"ops@gw.example\""
        ))
        .unwrap();
        let acme = config.acme.unwrap();
        assert!(acme.directory.starts_with("https://acme-v02.") && acme.ca.is_none());
        assert_eq!(acme.names, ["gw.example"]);
    }

    #[test]
    fn names_are_as_in_certificates_and_an_external_account_is_named_by_its_key() {
        let names = "[\"Gateway.Example.\", \"gateway.example\", \"www.example\"]";
        let bound = "[acme.external-account]\nkey-id = \"kid-1\"\nkey = \"/etc/karman/binding.key\"\n";
        let text = format!("[acme]\nnames = {names}\nfolder = \"acme\"\nterms-agreed = true\n{bound}");
        let acme = read(&text).unwrap().acme.unwrap();
        assert_eq!(acme.names, ["gateway.example", "www.example"]);
        let account = acme.external_account.unwrap();
        assert_eq!(
            (&account.key_id[..], account.key),
            ("kid-1", PathBuf::from("/etc/karman/binding.key"))
        );
    }

    #[test]
    fn browsers_are_told_of_tls_where_it_is_on() {
        let told = |text: &str| {
            let told = read(text).unwrap().strict_transport();
            told.map(|value| value.to_str().unwrap().to_owned())
        };
        let tls = "tls = { certificate = \"a\", key = \"b\" }\n";
        assert_eq!(told("hsts = \"1 d\""), None);
        assert_eq!(told(tls).as_deref(), Some("max-age=31536000"));
        assert_eq!(
            told(&format!("{tls}hsts = \"1 d\"")).as_deref(),
            Some("max-age=86400")
        );
        assert_eq!(
            told(&format!("{tls}hsts = \"0 s\"")).as_deref(),
            Some("max-age=0")
        );
        assert!(told(&format!("{ACME}terms-agreed = true")).is_some());
    }

    #[test]
    fn keys_are_read_and_wrong_ones_are_named() {
        let config = read("open = [\"infer:*\"]\n[limits]\nat-once = 4\nidle = \"5 s\"").unwrap();
        assert_eq!((config.open.len(), config.limits.at_once), (1, Some(4)));
        for (text, says) in [
            ("opne = []", "did you mean `open`?"),
            ("open = [\"infer\"]", "is not a right"),
            ("[limits]\nat-once = 0", "`limits.at-once` is 0"),
            ("[limits]\nfailed-tokens = 0", "`limits.failed-tokens` is 0"),
            ("[limits]\nbodies = \"1 MiB\"", "less than one body"),
            ("cors = [\"app.example\"]", "an origin is written"),
            ("hosts = [\"http://a\"]", "`hosts` has `http://a`"),
            ("hosts = [\"a:80\"]", "without scheme and port"),
            (
                "trusted-proxies = [\"proxy.example\"]",
                "neither an address nor a network",
            ),
            (
                "[[routes]]\npath = \"/v2\"\nplugin = \"a\"",
                "`routes` has the path `/v2`, which is the gateway's own",
            ),
            (
                "[[routes]]\nhosts = \"a.example\"\nplugin = \"a\"",
                "did you mean `host`?",
            ),
            (ACME, "`acme.terms-agreed` is not true"),
            (
                &ACME.replace("gw.example", "*.example")[..],
                "`acme.names` has `*.example`",
            ),
            (
                &ACME.replace("gw.example", "gw.example..")[..],
                "`acme.names` has `gw.example.`",
            ),
            (
                &format!("{ACME}external-account = {{ key-id = \"\", key = \"a\" }}")[..],
                "`acme.external-account.key-id` is empty",
            ),
            (
                &ACME.replace("\"gw.example\"", "")[..],
                "`acme.names` has 0 names",
            ),
            (
                &format!("{ACME}directory = \"http://a/\"")[..],
                "`acme.directory` is `http://a/`",
            ),
            (
                &format!("{ACME}contact = \"mailto:a@b\"")[..],
                "`acme.contact` is `mailto:a@b`",
            ),
            (
                &format!("{ACME}term-agreed = true")[..],
                "did you mean `terms-agreed`?",
            ),
            (
                &format!("{ACME}terms-agreed = true\n[tls]\ncertificate = \"a\"\nkey = \"b\"")[..],
                "`acme` has a certificate of its own",
            ),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
