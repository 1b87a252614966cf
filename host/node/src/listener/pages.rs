//! Pages in a browser, which may be anybody's. Whoever has a name can lead it to any address, for a moment also to this machine's own (DNS
//! rebinding): then a browser takes what answers there for the origin of that one's page, and no rule about other origins holds it back.
//! What the browser believes to ask stands in `host`, or in `:authority` of HTTP/2 and gRPC.

use super::connections::Listener;
use crate::config::{HostName, NodeConfig};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Request, Version, header};
use karman_types::TaskError;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Where browsers say whose page asks (Fetch Metadata). No page can say it in their place.
const SITE: &str = "sec-fetch-site";
/// A plugin's page is an origin of its own in a browser (Content Security Policy, level 3): with ours it could have done here whatever the
/// reader may, and on a gateway read the token that the dashboard keeps.
const OWN_ORIGIN: HeaderValue = HeaderValue::from_static(
    "sandbox allow-downloads allow-forms allow-modals allow-popups allow-popups-to-escape-sandbox allow-scripts",
);
/// The longest name that is told again.
const MOST_TOLD: usize = 256;

/// The host that a request asks for, where that is neither `localhost`, nor a name below it, nor an address, nor one of these names (as
/// [`plain_host`] has them; `*.shop.example` is every name with one part more). A tool that names none is no browser.
pub fn other_host<'r, B>(request: &'r Request<B>, named: &[String]) -> Option<Cow<'r, str>> {
    let authority = request.uri().authority().map(|asked| asked.as_str().as_bytes());
    let headers = request.headers().get_all(header::HOST).iter();
    let mut asked = authority.into_iter().chain(headers.map(HeaderValue::as_bytes));
    let other = asked.find(|asked| !leads_here(asked, named))?;
    Some(String::from_utf8_lossy(other))
}

/// `Gateway.Example.` is `gateway.example`.
pub fn plain_host(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Refuses a request that does not say for which host it is: what another server reads in it may be another one (RFC 9112, section 3.2).
///
/// # Errors
/// `invalid` (field `host`) for HTTP/1.1 without the header `host`, and for more than one of them.
pub fn must_name_one_host<B>(request: &Request<B>) -> Result<(), TaskError> {
    let needed = usize::from(request.version() == Version::HTTP_11);
    let found = request.headers().get_all(header::HOST).iter().count();
    match (needed..=1).contains(&found) {
        true => Ok(()),
        false => Err(TaskError::invalid(format!(
            "the request has {found} headers `host`, and has to have one"
        ))
        .with_field("host")
        .with_hint(
            "send the name or address that you call, once; a proxy between may have dropped or doubled it",
        )),
    }
}

/// Whether a page of another origin wants something done. Browsers let any page send some requests without asking, and keep only the
/// answer from it. Where they do not say themselves whose page asks (over plain HTTP, say), they name its origin.
pub fn is_of_another_page<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let site = headers.get(SITE).map(HeaderValue::as_bytes);
    match (site, headers.get(header::ORIGIN)) {
        _ if request.method().is_safe() => false,
        (Some(b"same-origin"), _) => false,
        (Some(b"cross-site" | b"same-site"), _) => true,
        (_, Some(origin)) => !is_same(origin, request),
        (_, None) => false,
    }
}

/// Whether an origin has the authority that is asked for. `null` has none.
fn is_same<B>(origin: &HeaderValue, request: &Request<B>) -> bool {
    let host = request.headers().get(header::HOST);
    let asked = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => host.and_then(|host| host.to_str().ok()),
    };
    let page = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    page.is_some_and(|(_, page)| asked.is_some_and(|asked| asked.eq_ignore_ascii_case(page)))
}

/// Has browsers take a plugin's answer for one of an origin of its own.
pub fn set_apart(headers: &mut HeaderMap) {
    headers.append(header::CONTENT_SECURITY_POLICY, OWN_ORIGIN);
}

fn leads_here(asked: &[u8], named: &[String]) -> bool {
    // Nobody can lead an address elsewhere. Most that are asked for have a port, and read at once.
    if str::from_utf8(asked).is_ok_and(|asked| asked.parse::<SocketAddr>().is_ok()) {
        return true;
    }
    let Ok(authority) = Authority::try_from(asked) else {
        return false;
    };
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bare.unwrap_or(host).parse::<IpAddr>().is_ok() {
        return true;
    }
    let name = plain_host(host);
    let fits = |known: &String| match known.strip_prefix("*.") {
        Some(below) => name
            .split_once('.')
            .is_some_and(|(first, rest)| !first.is_empty() && rest == below),
        None => *known == name,
    };
    name == "localhost" || name.ends_with(".localhost") || named.iter().any(fits)
}

/// What a door that asks nobody who they are goes by.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    named: Arc<[String]>,
    /// Whether others are refused: where names are told, or can only be those of this machine.
    judges: bool,
}

impl Pages {
    /// Of a node's door that listens there.
    pub(super) fn of(config: &NodeConfig, listener: &Listener) -> Self {
        let listen = listener.address().unwrap_or(config.listen);
        Self::new(&config.hosts, listen)
    }

    fn new(hosts: &[HostName], listen: SocketAddr) -> Self {
        Self {
            named: hosts.iter().map(|name| plain_host(name.as_str())).collect(),
            judges: !hosts.is_empty() || listen.ip().is_loopback(),
        }
    }

    /// Refuses a request that asks for another host.
    ///
    /// # Errors
    /// `denied` (field `host`) for a name that somebody leads here; those of [`must_name_one_host`].
    pub(super) fn must_know<B>(&self, request: &Request<B>) -> Result<(), TaskError> {
        must_name_one_host(request)?;
        let other = match self.judges {
            true => other_host(request, &self.named),
            false => None,
        };
        let Some(other) = other else { return Ok(()) };
        let other: String = other.chars().take(MOST_TOLD).collect();
        let error = TaskError::denied(format!("`{other}` is no name of this machine")).with_field("host");
        Err(error.with_hint("ask for `localhost` or an address, or name it in `hosts` of node.toml"))
    }

    /// Refuses what somebody's page wants.
    ///
    /// # Errors
    /// Those of [`Pages::must_know`], and `denied` (field `origin`) for what a page of another origin wants done.
    pub(super) fn must_take<B>(&self, request: &Request<B>) -> Result<(), TaskError> {
        self.must_know(request)?;
        if is_of_another_page(request) {
            let error = TaskError::denied("pages of other origins have nothing done here");
            let hint = "a gateway lets those call that are in its `cors`";
            return Err(error.with_field("origin").with_hint(hint));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;

    fn asks(method: Method, headers: &[(&'static str, &str)]) -> Request<()> {
        let request = Request::builder().method(method).uri("/tasks/a");
        let request = request.version(Version::HTTP_10);
        let request = headers
            .iter()
            .fold(request, |request, (name, value)| request.header(*name, *value));
        request.body(()).unwrap()
    }

    fn door(hosts: &[&str], listen: &str) -> Pages {
        let hosts: Vec<HostName> = hosts.iter().map(|name| name.parse().unwrap()).collect();
        Pages::new(&hosts, listen.parse().unwrap())
    }

    fn field(request: &Request<()>) -> Option<String> {
        let taken = door(&[], "127.0.0.1:8080").must_take(request);
        taken.err().and_then(|error| error.field)
    }

    #[test]
    fn names_that_are_told_are_taken_and_then_no_others_wherever_it_listens() {
        let asked = |host| asks(Method::POST, &[("host", host), (SITE, "same-origin")]);
        let takes = |door: &Pages, host| door.must_take(&asked(host)).is_ok();
        let named = door(&["Node.Example"], "127.0.0.1:8080");
        assert!(takes(&named, "node.example:8080") && takes(&named, "localhost"));
        assert!(!takes(&named, "evil.example"));
        let open = door(&["node.example"], "0.0.0.0:8080");
        assert!(takes(&open, "node.example") && takes(&open, "192.0.2.7:8080"));
        assert!(!takes(&open, "evil.example"));
        // Where it listens for others and no name is told, any may be right.
        assert!(takes(&door(&[], "0.0.0.0:8080"), "any.example"));
        // What a plugin's own pages want is for the plugin to judge.
        let elsewhere = asks(Method::POST, &[("host", "localhost"), (SITE, "cross-site")]);
        assert_eq!(named.must_know(&elsewhere), Ok(()));
    }

    #[test]
    fn a_page_has_nothing_by_a_name_that_it_leads_here() {
        let led = asks(
            Method::GET,
            &[("host", "evil.example:8080"), (SITE, "same-origin")],
        );
        assert_eq!(field(&led).as_deref(), Some("host"));
        let long = "a".repeat(2000);
        let door = door(&[], "[::1]:8080");
        let error = door
            .must_take(&asks(Method::GET, &[("host", &long)]))
            .unwrap_err();
        assert!(error.message.len() < 2 * MOST_TOLD, "{error}");
        for ours in ["localhost:8080", "127.0.0.1:8080", "[::1]", "a.localhost"] {
            assert_eq!(field(&asks(Method::POST, &[("host", ours)])), None, "{ours}");
        }
        assert_eq!(field(&asks(Method::POST, &[])), None, "no browser");
        let named = ["gateway.example".to_owned()];
        let asked = asks(Method::GET, &[("host", "Gateway.Example.:443")]);
        assert!(other_host(&asked, &named).is_none() && other_host(&asked, &[]).is_some());
        let below = ["*.example".to_owned()];
        assert!(other_host(&asked, &below).is_none());
        for other in ["example", ".example", "a.gateway.example"] {
            assert!(
                other_host(&asks(Method::GET, &[("host", other)]), &below).is_some(),
                "{other}"
            );
        }
    }

    #[test]
    fn a_page_of_another_origin_has_nothing_done() {
        let from = |method, site| field(&asks(method, &[("host", "localhost"), (SITE, site)]));
        for site in ["cross-site", "same-site"] {
            assert_eq!(from(Method::POST, site).as_deref(), Some("origin"), "{site}");
            // What it reads the browser keeps from it.
            assert_eq!(from(Method::GET, site), None, "{site}");
        }
        for site in ["same-origin", "none"] {
            assert_eq!(from(Method::POST, site), None, "{site}");
        }
    }

    #[test]
    fn where_a_browser_does_not_say_whose_page_asks_its_origin_tells() {
        let asked = |method, origin| asks(method, &[("host", "localhost:8080"), ("origin", origin)]);
        let from = |method, origin| field(&asked(method, origin));
        for other in [
            "null",
            "https://evil.example",
            "http://localhost:9090",
            "http://localhost",
        ] {
            assert_eq!(from(Method::POST, other).as_deref(), Some("origin"), "{other}");
            assert_eq!(from(Method::GET, other), None, "{other}");
        }
        assert_eq!(from(Method::POST, "http://localhost:8080"), None);
        let open = door(&[], "0.0.0.0:8080");
        assert!(open.must_take(&asked(Method::POST, "null")).is_err());
        // What the browser says itself goes before: a server in between may have rewritten `host`.
        let mut vouched = asked(Method::POST, "https://app.example");
        vouched
            .headers_mut()
            .insert(SITE, HeaderValue::from_static("same-origin"));
        assert_eq!(field(&vouched), None);
    }

    #[test]
    fn a_request_is_for_one_host() {
        let names = |version, hosts: &[&str]| {
            let hosts: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
            let mut request = asks(Method::GET, &hosts);
            *request.version_mut() = version;
            must_name_one_host(&request).is_ok()
        };
        assert!(names(Version::HTTP_11, &["localhost"]) && names(Version::HTTP_11, &[""]));
        assert!(!names(Version::HTTP_11, &[]));
        for version in [Version::HTTP_10, Version::HTTP_2] {
            assert!(names(version, &[]) && names(version, &["localhost"]));
        }
        for version in [Version::HTTP_10, Version::HTTP_11, Version::HTTP_2] {
            assert!(!names(version, &["localhost", "localhost"]));
            assert!(!names(version, &["localhost", "evil.example"]));
        }
    }
}
