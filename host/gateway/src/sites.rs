//! Which HTTP plugin a request leads to. The host decides first: one that has routes of its own has nothing but them, so that the pages
//! of its plugins share their origin with nothing of the gateway. Elsewhere the gateway's own paths come first, and then the routes
//! without a host. Among the routes of one host the longest path is taken.

use crate::config::{GatewayConfig, RouteConfig};
use crate::hosts::asked_host;
use crate::target::Target;
use http::{HeaderName, HeaderValue, Request, Uri, header};
use karman_node::{Node, plain_host, plugin_path};
use karman_types::World;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Where a plugin is told what stood before the path that it sees: so it can write links that lead back to it. Web frameworks know it by
/// this name.
const PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");
/// Where it is told by which scheme it was asked, so that its links and cookies have the same.
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// The routes of all hosts.
#[derive(Debug, Default)]
pub(crate) struct Sites {
    /// Names of the gateway itself, whatever pattern they fit.
    names: HashSet<String>,
    /// Beside the gateway's own paths.
    own: Site,
    exact: HashMap<String, Site>,
    /// `*.shop.example` stands here as `shop.example`.
    below: HashMap<String, Site>,
}

/// The routes of one host.
#[derive(Debug, Default)]
struct Site {
    /// The longest first.
    routes: Vec<Route>,
    /// Whether they lead to more than one plugin.
    is_shared: bool,
}

#[derive(Debug)]
struct Route {
    prefix: Arc<str>,
    plugin: Arc<str>,
}

/// What a request asks for.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) target: Target,
    /// The plugin that answers it, where one does.
    pub(crate) led: Option<Led>,
}

/// A way to an HTTP plugin.
#[derive(Debug)]
pub(crate) struct Led {
    pub(crate) plugin: Arc<str>,
    /// Whether nothing else answers on the host that was asked for, so that its pages are an origin of their own already.
    pub(crate) is_alone: bool,
    prefix: Arc<str>,
    rest: Uri,
}

impl Sites {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        let mut sites = Self {
            names: config.hosts.iter().map(|name| plain_host(name)).collect(),
            ..Self::default()
        };
        for route in &config.routes {
            sites.site_of(route.host().as_deref()).add(route);
        }
        sites
    }

    fn site_of(&mut self, host: Option<&str>) -> &mut Site {
        let Some(host) = host else {
            return &mut self.own;
        };
        match host.strip_prefix("*.") {
            Some(below) => self.below.entry(below.to_owned()).or_default(),
            None => self.exact.entry(host.to_owned()).or_default(),
        }
    }

    /// What the request asks for.
    pub(crate) fn asked<B>(&self, request: &Request<B>) -> Asked {
        let uri = request.uri();
        if let Some(site) = self.of_host(request) {
            return Asked::by_route(site.lead(uri, !site.is_shared));
        }
        match Target::of(uri.path()) {
            Target::Unknown => Asked::by_route(self.own.lead(uri, false)),
            Target::Plugin => Asked {
                target: Target::Plugin,
                led: Led::by_name(uri),
            },
            target => Asked { target, led: None },
        }
    }

    /// The routes of the host that is asked for, where it has some of its own.
    fn of_host<B>(&self, request: &Request<B>) -> Option<&Site> {
        if self.exact.is_empty() && self.below.is_empty() {
            return None;
        }
        let host = asked_host(request).filter(|host| !self.names.contains(host))?;
        let pattern = || {
            let (first, below) = host.split_once('.')?;
            self.below.get(below).filter(|_| !first.is_empty())
        };
        self.exact.get(&host).or_else(pattern)
    }

    /// Says in the log what leads to no HTTP plugin. It is no reason not to start: plugins come to a node that runs.
    pub(crate) fn warn_of_missing(&self, node: &Node) {
        let of_hosts = self.exact.values().chain(self.below.values());
        let routes = of_hosts.chain([&self.own]).flat_map(|site| &site.routes);
        let plugins: HashSet<&str> = routes.map(|route| &*route.plugin).collect();
        for plugin in plugins {
            let found = node.plugins().find(plugin);
            match found.map(|slot| slot.current().package().world) {
                Ok(World::Http) => {}
                Ok(world) => tracing::warn!(
                    plugin,
                    %world,
                    "`[[gateway.routes]]` leads to a plugin that does not answer HTTP"
                ),
                Err(_) => tracing::warn!(
                    plugin,
                    "`[[gateway.routes]]` leads to a plugin that is not here: it answers once it is deployed"
                ),
            }
        }
    }
}

impl Site {
    fn add(&mut self, route: &RouteConfig) {
        let first = self.routes.first();
        self.is_shared |= first.is_some_and(|first| *first.plugin != *route.plugin);
        self.routes.push(Route {
            prefix: route.prefix().into(),
            plugin: route.plugin.as_str().into(),
        });
        self.routes.sort_by_key(|route| Reverse(route.prefix.len()));
    }

    fn lead(&self, uri: &Uri, is_alone: bool) -> Option<Led> {
        let route = self.routes.iter().find(|route| route.covers(uri.path()))?;
        let rest = uri.path_and_query()?.as_str().strip_prefix(&*route.prefix)?;
        let rest: Result<Uri, _> = match rest.starts_with('/') {
            true => rest.parse(),
            false => format!("/{rest}").parse(),
        };
        Some(Led {
            plugin: route.plugin.clone(),
            is_alone,
            prefix: route.prefix.clone(),
            rest: rest.ok()?,
        })
    }
}

impl Route {
    fn covers(&self, path: &str) -> bool {
        let rest = path.strip_prefix(&*self.prefix);
        rest.is_some_and(|rest| rest.starts_with('/') || (rest.is_empty() && !self.prefix.is_empty()))
    }
}

impl Asked {
    fn by_route(led: Option<Led>) -> Self {
        let target = match led {
            Some(_) => Target::Plugin,
            None => Target::Unknown,
        };
        Self { target, led }
    }
}

impl Led {
    /// By `/http/NAME/…`.
    fn by_name(uri: &Uri) -> Option<Self> {
        let (name, rest) = plugin_path(uri)?;
        Some(Self {
            prefix: format!("/http/{name}").into(),
            plugin: name.into(),
            is_alone: false,
            rest,
        })
    }

    /// Makes a request what the plugin sees: the path behind the route's, the host that was asked for, and what stood before the path.
    /// What a caller says of that itself is taken away; without TLS the scheme is for a proxy in front to tell.
    pub(crate) fn lead<B>(&self, request: &mut Request<B>, is_tls: bool) {
        // HTTP/2 has the host there; and where both are, this one counts (RFC 9112, section 3.2.2).
        let asked = request.uri().authority().map(|asked| {
            let asked = asked.as_str();
            let host = asked.rsplit_once('@').map_or(asked, |(_, host)| host);
            HeaderValue::try_from(host)
        });
        let headers = request.headers_mut();
        if let Some(Ok(host)) = asked {
            headers.insert(header::HOST, host);
        }
        if is_tls {
            headers.insert(PROTO, HeaderValue::from_static("https"));
        }
        headers.remove(PREFIX);
        if let (false, Ok(prefix)) = (self.prefix.is_empty(), HeaderValue::try_from(&*self.prefix)) {
            headers.insert(PREFIX, prefix);
        }
        *request.uri_mut() = self.rest.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sites(routes: &[(&str, &str, &str)]) -> Sites {
        let route = |&(host, path, plugin): &(&str, &str, &str)| RouteConfig {
            host: (!host.is_empty()).then(|| host.to_owned()),
            path: path.to_owned(),
            plugin: plugin.to_owned(),
        };
        Sites::new(&GatewayConfig {
            hosts: vec!["gateway.shop.example".into()],
            routes: routes.iter().map(route).collect(),
            ..GatewayConfig::default()
        })
    }

    fn asks(host: &str, path: &str) -> Request<()> {
        let request = Request::builder().uri(path).header(header::HOST, host);
        request.body(()).unwrap()
    }

    /// The plugin and what it sees, or what else is asked for.
    fn found(sites: &Sites, host: &str, path: &str) -> (Target, String) {
        let mut request = asks(host, path);
        let Asked { target, led } = sites.asked(&request);
        let seen = led.map(|led| {
            led.lead(&mut request, false);
            format!("{} {}", led.plugin, request.uri())
        });
        (target, seen.unwrap_or_default())
    }

    #[test]
    fn the_host_decides_first_and_then_the_longest_path() {
        let sites = sites(&[
            ("", "/cart", "cart"),
            ("", "/cart/old/", "old"),
            ("shop.example", "/", "shop"),
            ("shop.example", "/cart", "basket"),
            ("*.shop.example", "/", "branch"),
            ("big.shop.example", "/only", "big"),
        ]);
        for (host, path, seen) in [
            ("localhost", "/cart", "cart /"),
            ("localhost", "/cart?a=b", "cart /?a=b"),
            ("localhost", "/cart/", "cart /"),
            ("localhost", "/cart/a/b?c", "cart /a/b?c"),
            ("localhost", "/cart/old", "old /"),
            ("localhost", "/cart/older", "cart /older"),
            ("localhost", "/http/any/a", "any /a"),
            ("Shop.Example.:8443", "/", "shop /"),
            ("shop.example", "/admin/nodes", "shop /admin/nodes"),
            ("shop.example", "/healthz", "shop /healthz"),
            ("shop.example", "/cart/1", "basket /1"),
            ("shop.example", "/carts", "shop /carts"),
            ("a.shop.example", "/v2", "branch /v2"),
            ("big.shop.example", "/only/a", "big /a"),
        ] {
            let seen = (Target::Plugin, seen.to_owned());
            assert_eq!(found(&sites, host, path), seen, "{host}{path}");
        }
        for (host, path, target) in [
            ("localhost", "/", Target::Dashboard),
            ("localhost", "/carts", Target::Unknown),
            ("localhost", "/admin/nodes", Target::Admin),
            // The host has routes: those without one, and of a pattern, are not for it, and neither is the gateway.
            ("big.shop.example", "/cart", Target::Unknown),
            ("big.shop.example", "/admin/nodes", Target::Unknown),
            ("big.shop.example", "/http/any", Target::Unknown),
            // As in certificates, a pattern stands for one part.
            ("a.b.shop.example", "/admin/nodes", Target::Admin),
            (".shop.example", "/admin/nodes", Target::Admin),
            ("gateway.shop.example", "/admin/nodes", Target::Admin),
            ("evilshop.example", "/admin/nodes", Target::Admin),
            ("a b", "/admin/nodes", Target::Admin),
        ] {
            assert_eq!(found(&sites, host, path), (target, String::new()), "{host}{path}");
        }
    }

    #[test]
    fn a_plugin_is_alone_where_all_of_a_host_is_its_own() {
        let sites = sites(&[
            ("", "/cart", "cart"),
            ("alone.example", "/a", "one"),
            ("alone.example", "/b", "one"),
            ("*.shop.example", "/", "one"),
            ("shared.example", "/", "one"),
            ("shared.example", "/other", "other"),
        ]);
        let is_alone = |host, path| sites.asked(&asks(host, path)).led.unwrap().is_alone;
        assert!(is_alone("alone.example", "/a") && is_alone("alone.example", "/b/c"));
        assert!(is_alone("a.shop.example", "/"));
        assert!(!is_alone("shared.example", "/") && !is_alone("shared.example", "/other"));
        assert!(!is_alone("localhost", "/cart") && !is_alone("localhost", "/http/one"));
    }

    #[test]
    fn a_plugin_is_told_where_it_stands_by_the_gateway_alone() {
        let sites = sites(&[("", "/cart", "cart"), ("shop.example", "/", "shop")]);
        let led = |mut request: Request<()>| {
            request
                .headers_mut()
                .insert(PREFIX, HeaderValue::from_static("/evil"));
            let led = sites.asked(&request).led.unwrap();
            led.lead(&mut request, true);
            let header = |name: HeaderName| request.headers().get(name).cloned();
            assert_eq!(header(PROTO), Some(HeaderValue::from_static("https")));
            (header(PREFIX), header(header::HOST))
        };
        let told = |text: &'static str| Some(HeaderValue::from_static(text));
        assert_eq!(led(asks("localhost", "/cart/a")).0, told("/cart"));
        assert_eq!(led(asks("localhost", "/http/any/a")).0, told("/http/any"));
        assert_eq!(led(asks("shop.example", "/a")), (None, told("shop.example")));
        // As HTTP/2 has it.
        let second = Request::builder().uri("https://shop.example:8443/a");
        assert_eq!(led(second.body(()).unwrap()).1, told("shop.example:8443"));
    }

    proptest! {
        /// Whatever routes there are: what the gateway answers itself it goes on answering, on every host that has none of its own.
        #[test]
        fn no_route_takes_what_is_the_gateways(
            routes in prop::collection::vec(("(a\\.example)?", "(/[av2dmin]{1,5}){0,3}", "[ab]"), 0..6),
            path in "/(v2|admin|flows|tasks|dashboard|accepted|metrics|healthz|openapi\\.json)?",
        ) {
            let routes: Vec<_> = routes.iter().map(|(host, path, plugin)| (&**host, &**path, &**plugin)).collect();
            let target = Target::of(&path);
            prop_assert_ne!(target, Target::Unknown);
            prop_assert_eq!(found(&sites(&routes), "localhost", &path), (target, String::new()));
        }

        /// The path that a plugin sees is what is left of the one that was asked for, and no other route would have left less of it.
        #[test]
        fn the_longest_path_is_taken(
            paths in prop::collection::vec("(/[ab]{1,2}){0,3}", 1..6),
            asked in "(/[ab]{1,2}){1,4}",
        ) {
            let routes: Vec<_> = paths.iter().map(|path| ("a.example", &**path, "one")).collect();
            let longest = paths
                .iter()
                .filter(|path| format!("{asked}/").starts_with(&format!("{path}/")))
                .map(String::len)
                .max();
            let rest = longest.map(|at| match &asked[at..] {
                "" => "one /".to_owned(),
                rest => format!("one {rest}"),
            });
            prop_assert_eq!(found(&sites(&routes), "a.example", &asked).1, rest.unwrap_or_default());
        }
    }
}
