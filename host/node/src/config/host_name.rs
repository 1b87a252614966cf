use http::uri::Authority;
use std::fmt;
use std::str::FromStr;

/// A name that leads to a machine: `node.example`, or `*.node.example` for every name with one part more. Without scheme and port.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HostName(String);

/// A text that is no name of a host.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is no name of a host; it is written `node.example`, without scheme and port")]
pub struct HostNameError(String);

impl HostName {
    /// The name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let is_bare = |authority: Authority| authority.host() == text && !text.starts_with('[');
        match text.parse::<Authority>().is_ok_and(is_bare) {
            true => Ok(Self(text.to_owned())),
            false => Err(HostNameError(text.to_owned())),
        }
    }
}

karman_types::serde_as_text!(HostName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_from_an_address_with_more_in_it() {
        for name in ["node.example", "Node.Example.", "*.node.example", "pi"] {
            assert_eq!(name.parse::<HostName>().unwrap().as_str(), name);
        }
        for wrong in ["", "http://a", "a:80", "a/b", "u@a", "[::1]", "a b"] {
            let error = wrong.parse::<HostName>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
