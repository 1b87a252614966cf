//! Which addresses are on the open internet, and which are this machine's or beside it.

use if_addrs::{IfAddr, get_if_addrs};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one that anybody on the internet may be at: the special-purpose registries of RFC 6890 are not.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    !(a == 0
        // The server of Azure's machines for their own metadata stands among public ones.
        || [a, b, c, d] == [168, 63, 129, 16]
        || a == 10
        || a == 127
        || (a == 100 && (64..128).contains(&b))
        || (a == 169 && b == 254)
        || (a == 172 && (16..32).contains(&b))
        || (a == 192 && b == 168)
        || (a == 192 && b == 0 && (c == 0 || c == 2))
        || (a == 198 && (18..20).contains(&b))
        || (a == 198 && b == 51 && c == 100)
        || (a == 203 && b == 0 && c == 113)
        || a >= 224)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    // An IPv4 address in another coat is judged as what it is: mapped, compatible, NAT64 and 6to4.
    let segments = address.segments();
    let embedded = match segments {
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((high, low)),
        [0x2002, high, low, ..] => Some((high, low)),
        _ => None,
    };
    match embedded {
        Some((high, low)) => is_public_v4(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low))),
        // Global unicast is 2000::/3, less documentation, Teredo and benchmarking.
        None => {
            segments[0] & 0xe000 == 0x2000
                && !(segments[0] == 0x2001 && (segments[1] == 0xdb8 || segments[1] < 0x200))
                && segments[0] != 0x3fff
        }
    }
}

/// The addresses of this machine, and the IPv6 networks that it is on. These have public addresses without being public: what listens on
/// a machine trusts who is on it, and a printer at home has no other door than its router's.
pub(super) struct Neighbourhood(Vec<IfAddr>);

impl Neighbourhood {
    /// As they are now; nothing where the system does not say.
    pub(super) async fn of_this_machine() -> Self {
        let interfaces = tokio::task::spawn_blocking(get_if_addrs).await;
        let interfaces = interfaces.ok().and_then(Result::ok).unwrap_or_default();
        Self(interfaces.into_iter().map(|interface| interface.addr).collect())
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        let is_near = |own: &IfAddr| match (own, address.to_canonical()) {
            // Others in the network of a public IPv4 address are strangers.
            (IfAddr::V4(own), IpAddr::V4(address)) => own.ip == address,
            (IfAddr::V6(own), IpAddr::V6(address)) => {
                let network = own.netmask.to_bits();
                own.ip == address || network != 0 && (own.ip.to_bits() ^ address.to_bits()) & network == 0
            }
            _ => false,
        };
        self.0.iter().any(is_near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use if_addrs::{Ifv4Addr, Ifv6Addr};

    #[test]
    fn special_addresses_are_not_public() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "172.31.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "100.64.0.1",
            "0.0.0.0",
            "255.255.255.255",
            "::1",
            "::",
            "fe80::1",
            "fd00::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
            "2001:db8::1",
            "ff02::1",
        ] {
            assert!(!is_public(text.parse().unwrap()), "{text}");
        }
        for text in ["1.1.1.1", "172.32.0.1", "2606:4700::1111", "::ffff:1.1.1.1"] {
            assert!(is_public(text.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn this_machine_and_its_ipv6_network_are_near() {
        let near = Neighbourhood(vec![
            IfAddr::V4(Ifv4Addr {
                ip: [8, 8, 4, 4].into(),
                netmask: [255, 255, 255, 0].into(),
                prefixlen: 24,
                broadcast: None,
            }),
            IfAddr::V6(Ifv6Addr {
                ip: "2606:4700:0:1::5".parse().unwrap(),
                netmask: "ffff:ffff:ffff:ffff::".parse().unwrap(),
                prefixlen: 64,
                broadcast: None,
            }),
        ]);
        for (text, is_near) in [
            ("8.8.4.4", true),
            ("::ffff:8.8.4.4", true),
            ("8.8.4.5", false),
            ("2606:4700:0:1::5", true),
            ("2606:4700:0:1:abcd::9", true),
            ("2606:4700:0:2::5", false),
        ] {
            assert_eq!(near.has(text.parse().unwrap()), is_near, "{text}");
        }
    }

    #[tokio::test]
    async fn this_machine_is_near_itself() {
        let near = Neighbourhood::of_this_machine().await;
        assert!(near.has(Ipv4Addr::LOCALHOST.into()));
    }
}
