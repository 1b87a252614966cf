use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Addresses that belong together: `10.0.0.0/8`, or one of them, `10.0.0.2`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network(IpNet);

/// A text that is no network.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is neither an address nor a network; write `10.0.0.2` or `10.0.0.0/8`")]
pub struct NetworkError(String);

impl Network {
    /// Whether the address is one of them. An address of IPv4 may be written as one of IPv6.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let one = || {
            text.parse::<IpAddr>()
                .map(|address| IpNet::from(address.to_canonical()))
        };
        match text.parse::<IpNet>().or_else(|_| one()) {
            Ok(network) => Ok(Self(network)),
            Err(_) => Err(NetworkError(text.to_owned())),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.prefix_len() == self.0.max_prefix_len() {
            true => fmt::Display::fmt(&self.0.addr(), f),
            false => fmt::Display::fmt(&self.0, f),
        }
    }
}

karman_types::serde_as_text!(Network);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_they_are_written() {
        for text in ["10.0.0.2", "10.0.0.0/8", "2001:db8::1", "fd00::/8"] {
            let network: Network = text.parse().unwrap();
            assert_eq!(network.to_string(), text);
        }
        for wrong in [
            "",
            "10.0.0",
            "10.0.0.0/33",
            "localhost",
            "10.0.0.1:80",
            "10.0.0.0/8/8",
        ] {
            let error = wrong.parse::<Network>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
        let network: Network = "10.0.0.0/8".parse().unwrap();
        assert!(network.contains("10.9.9.9".parse().unwrap()));
        assert!(network.contains("::ffff:10.9.9.9".parse().unwrap()));
        assert!(!network.contains("11.0.0.1".parse().unwrap()));
    }
}
