//! Who calls by way of reverse proxies: those that the operator trusts say for whom they ask, by `Forwarded` (RFC 7239) or by
//! `X-Forwarded-For`. What anybody else says of that is not believed.

use crate::config::Network;
use http::{HeaderMap, HeaderName, header};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Proxies that a request may have come by; those before are not looked at.
const MOST_PROXIES: usize = 16;
/// The longest word on one of them that is looked at: an address has at most 45 characters, its port six.
const MOST_BYTES: usize = 256;

/// The proxies that are believed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies(Vec<Network>);

/// Where a request comes from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Peer {
    /// The other end of the connection.
    end: SocketAddr,
    /// Of whom it asks for, where it is a proxy that is believed; else its own.
    pub(crate) address: IpAddr,
}

impl Proxies {
    pub(crate) const fn new(trusted: Vec<Network>) -> Self {
        Self(trusted)
    }

    /// Where a request with these headers comes from.
    pub(crate) fn peer(&self, headers: &HeaderMap, end: SocketAddr) -> Peer {
        let address = match self.trusts(end.ip()) {
            true => self.caller(headers, end.ip()),
            false => end.ip(),
        };
        Peer { end, address }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// A proxy writes one of the two headers and may pass the other one on, which is then the caller's own. So where both are there and
    /// say different things, neither is believed.
    fn caller(&self, headers: &HeaderMap, proxy: IpAddr) -> IpAddr {
        let by = |name: HeaderName, read: fn(&str) -> Option<IpAddr>| {
            headers
                .contains_key(&name)
                .then(|| self.first_unknown(headers, &name, read, proxy))
        };
        match (by(header::FORWARDED, forwarded), by(X_FORWARDED_FOR, address)) {
            (Some(one), Some(other)) if one != other => proxy,
            (Some(caller), _) | (None, Some(caller)) => caller,
            (None, None) => proxy,
        }
    }

    /// From the nearest proxy on, the first address that is no trusted one; the farthest trusted one where all are, or where one does
    /// not say for whom it asks.
    fn first_unknown(
        &self,
        headers: &HeaderMap,
        name: &HeaderName,
        read: fn(&str) -> Option<IpAddr>,
        proxy: IpAddr,
    ) -> IpAddr {
        let lines = headers.get_all(name).iter().rev();
        let words = lines.flat_map(|line| line.as_bytes().rsplit(|&byte| byte == b','));
        let mut nearest = proxy;
        for word in words.take(MOST_PROXIES) {
            let word = (word.len() <= MOST_BYTES).then_some(word);
            let word = word.and_then(|word| std::str::from_utf8(word).ok());
            let Some(before) = word.and_then(|word| read(word.trim())) else {
                break;
            };
            nearest = before;
            if !self.trusts(before) {
                break;
            }
        }
        nearest
    }
}

impl Peer {
    /// The proxy that the request came by, where it did.
    pub(crate) fn proxy(&self) -> Option<SocketAddr> {
        (self.address != self.end.ip()).then_some(self.end)
    }
}

impl fmt::Display for Peer {
    /// The caller: with the port where there is no proxy between.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.proxy() {
            None => fmt::Display::fmt(&self.end, f),
            Some(_) => fmt::Display::fmt(&self.address, f),
        }
    }
}

/// `for=192.0.2.7;proto=https` of `Forwarded`. Names that hide an address (`unknown`, `_a7`) are none.
fn forwarded(word: &str) -> Option<IpAddr> {
    let value = word.split(';').find_map(|pair| {
        let (name, value) = pair.trim().split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(value)
    })?;
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    address(quoted.unwrap_or(value))
}

/// `192.0.2.7`, `2001:db8::7`, and either with a port: `192.0.2.7:80`, `[2001:db8::7]:80`.
fn address(word: &str) -> Option<IpAddr> {
    let bare = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
    let alone = || bare.unwrap_or(word).parse::<IpAddr>().ok();
    let with_port = || Some(word.parse::<SocketAddr>().ok()?.ip());
    alone().or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PROXY: &str = "10.0.0.2:4711";

    fn proxies() -> Proxies {
        let trusted = ["10.0.0.0/8", "2001:db8:ff::1"];
        Proxies::new(trusted.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn caller(peer: &str, said: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in said {
            headers.append(*name, value.parse().unwrap());
        }
        proxies().peer(&headers, peer.parse().unwrap()).to_string()
    }

    #[test]
    fn whom_a_trusted_proxy_asks_for_is_believed() {
        for (value, is) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7:80", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            // What the caller wrote itself stands to the left, and other proxies of ours to the right.
            ("127.0.0.1, 192.0.2.7", "192.0.2.7"),
            ("127.0.0.1, 192.0.2.7, 10.9.9.9", "192.0.2.7"),
            ("192.0.2.7, 2001:db8:ff::1,10.0.0.7", "192.0.2.7"),
            // All are ours: the farthest asks for itself.
            ("10.3.3.3, 10.0.0.7", "10.3.3.3"),
            ("192.0.2.7, unknown, 10.0.0.7", "10.0.0.7"),
        ] {
            assert_eq!(caller(PROXY, &[("x-forwarded-for", value)]), is, "{value}");
        }
        for (value, is) in [
            ("for=192.0.2.7", "192.0.2.7"),
            ("proto=https; For=\"192.0.2.7:80\";by=_us", "192.0.2.7"),
            ("for=\"[2001:db8::7]:80\"", "2001:db8::7"),
            ("for=127.0.0.1, for=192.0.2.7, for=10.9.9.9", "192.0.2.7"),
            ("for=\"a, for=192.0.2.7", "192.0.2.7"),
        ] {
            assert_eq!(caller(PROXY, &[("forwarded", value)]), is, "{value}");
        }
        let lines = [("x-forwarded-for", "192.0.2.7"), ("x-forwarded-for", "10.0.0.9")];
        assert_eq!(caller(PROXY, &lines), "192.0.2.7");
    }

    #[test]
    fn what_anybody_else_says_is_not() {
        let said = [("x-forwarded-for", "192.0.2.7")];
        assert_eq!(caller("192.0.2.9:80", &said), "192.0.2.9:80");
        for nothing in ["", "unknown", "_hidden", "192.0.2.7.1", "for=192.0.2.7"] {
            assert_eq!(caller(PROXY, &[("x-forwarded-for", nothing)]), PROXY, "{nothing}");
        }
        assert_eq!(caller(PROXY, &[("forwarded", "proto=https")]), PROXY);
        assert_eq!(caller(PROXY, &[]), PROXY);
        // One of the two is not the proxy's own, and nobody knows which.
        let both = |forwarded| caller(PROXY, &[said[0], ("forwarded", forwarded)]);
        assert_eq!(both("for=192.0.2.8"), PROXY);
        assert_eq!(both("for=192.0.2.7"), "192.0.2.7");
        // However many proxies somebody makes up, only the nearest are looked at.
        let long = format!("192.0.2.7{}", ", 10.0.0.9".repeat(1000));
        assert_eq!(caller(PROXY, &[("x-forwarded-for", &long)]), "10.0.0.9");
    }

    proptest! {
        /// Whatever a caller writes, the proxy in front of it says last who it is.
        #[test]
        fn nobody_writes_over_what_the_proxy_says(own in "[ -~]{0,60}") {
            let (listed, told) = (format!("{own}, 192.0.2.7"), format!("{own}, for=192.0.2.7"));
            prop_assert_eq!(caller(PROXY, &[("x-forwarded-for", &listed)]), "192.0.2.7");
            prop_assert_eq!(caller(PROXY, &[("forwarded", &told)]), "192.0.2.7");
        }
    }
}
