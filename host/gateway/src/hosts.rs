//! The names that callers without a token have to ask for: a page can lead its own name here (DNS rebinding), see [`other_host`].

use crate::config::{GatewayConfig, RouteConfig};
use crate::refusal::Refusal;
use crate::span;
use http::uri::Authority;
use http::{Request, header};
use karman_node::{other_host, plain_host};
use karman_types::TaskError;
use std::net::SocketAddr;

/// Names that lead here, as far as is known.
#[derive(Clone, Debug)]
pub(crate) struct Hosts {
    named: Vec<String>,
    /// Whether others are refused: where callers need no token, and names are told or can only be those of this machine.
    judges: bool,
}

impl Hosts {
    pub(crate) fn new(config: &GatewayConfig, listen: SocketAddr) -> Self {
        let of_certificate = config.acme.iter().flat_map(|acme| &acme.names);
        let named = config.hosts.iter().chain(of_certificate);
        let of_routes = config.routes.iter().filter_map(RouteConfig::host);
        Self {
            named: named.map(|name| plain_host(name)).chain(of_routes).collect(),
            judges: !config.open.is_empty() && (!config.hosts.is_empty() || listen.ip().is_loopback()),
        }
    }

    /// Refuses a request that asks for another host. A tool that names none is no browser.
    ///
    /// # Errors
    /// `denied` (field `host`), with the name.
    pub(crate) fn must_know<B>(&self, request: &Request<B>) -> Result<(), Refusal> {
        if !self.judges {
            return Ok(());
        }
        match other_host(request, &self.named) {
            Some(other) => Err(strange(&other)),
            None => Ok(()),
        }
    }
}

/// The host that a request asks for, as [`plain_host`] has it: `:authority`, or the one of an address that is written out, goes before the
/// header (RFC 9112, section 3.2.2).
pub(crate) fn asked_host<B>(request: &Request<B>) -> Option<String> {
    let of_header = || {
        let value = request.headers().get(header::HOST)?;
        Authority::try_from(value.as_bytes()).ok()
    };
    let asked = request.uri().authority().cloned().or_else(of_header)?;
    Some(plain_host(asked.host()))
}

fn strange(host: &str) -> Refusal {
    let host = span::cut(host);
    let error = TaskError::denied(format!(
        "`{host}` is no name of this gateway, which takes no others without a token"
    ));
    let hint = "name it in `hosts` below `[gateway]` of node.toml, or send a token";
    error.with_field("host").with_hint(hint).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(open: &[&str], hosts: &[&str], listen: &str) -> Hosts {
        let config = GatewayConfig {
            routes: vec![route("Shop.Example"), route("*.branch.example")],
            open: open.iter().map(|right| right.parse().unwrap()).collect(),
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            ..GatewayConfig::default()
        };
        Hosts::new(&config, listen.parse().unwrap())
    }

    fn route(host: &str) -> RouteConfig {
        RouteConfig {
            host: Some(host.to_owned()),
            path: "/".into(),
            plugin: "shop".into(),
        }
    }

    fn asks(uri: &str, host: Option<&str>) -> Request<()> {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn a_name_that_is_led_here_is_told_from_those_of_this_machine() {
        let hosts = hosts(&["admin"], &["Gateway.Example"], "127.0.0.1:8080");
        let takes = |host| hosts.must_know(&asks("/admin/drain", Some(host)));
        for ours in [
            "localhost",
            "LOCALHOST.:8080",
            "a.localhost:1",
            "127.0.0.1:8080",
            "[::1]:8080",
            "192.168.0.7",
            "gateway.example:443",
            "shop.example:443",
            "a.branch.example",
        ] {
            assert_eq!(takes(ours), Ok(()), "{ours}");
        }
        for other in [
            "evil.example",
            "evil.example:8080",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "gateway.example.evil.example",
            "a.shop.example",
            "branch.example",
            ".branch.example",
            "a.b.branch.example",
            "",
            "a b",
        ] {
            let refused = takes(other).unwrap_err();
            assert_eq!(refused.error.field.as_deref(), Some("host"), "{other}");
            assert!(refused.error.hint.unwrap().contains("`hosts`"), "{other}");
        }
    }

    #[test]
    fn http_2_and_grpc_say_it_in_another_place() {
        let hosts = hosts(&["infer:*"], &[], "[::1]:8080");
        let path = "inference.GRPCInferenceService/ModelInfer";
        let takes = |authority: &str, host| {
            let request = asks(&format!("http://{authority}/{path}"), host);
            hosts.must_know(&request).is_ok()
        };
        assert!(takes("localhost:8080", None) && takes("[::1]:8080", Some("localhost:8080")));
        assert!(!takes("evil.example:8080", None) && !takes("evil.example", Some("localhost")));
        assert!(!takes("localhost", Some("evil.example")));
        assert_eq!(hosts.must_know(&asks("/v2", None)), Ok(()), "no browser");
    }

    #[test]
    fn where_nothing_is_open_or_any_name_may_be_right_none_is_refused() {
        let asked = asks("/v2", Some("other.example"));
        let takes = |open: &[&str], named: &[&str], listen: &str| {
            hosts(open, named, listen).must_know(&asked).is_ok()
        };
        assert!(takes(&[], &["gateway.example"], "127.0.0.1:8080"));
        assert!(takes(&["infer:*"], &[], "0.0.0.0:8080"));
        assert!(!takes(&["infer:*"], &["gateway.example"], "0.0.0.0:8080"));
        assert!(!takes(&["infer:*"], &[], "127.0.0.1:8080"));
    }
}
