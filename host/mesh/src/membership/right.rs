use karman_types::{is_of_a_name, pattern_matches};
use std::fmt;
use std::str::FromStr;

/// What a member may do in the mesh, written `kind` or `kind:pattern`. `*` in a pattern stands for any run of characters.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Right {
    /// `bucket-read:PATTERN`: read these buckets.
    BucketRead(Pattern),
    /// `bucket-write:PATTERN`: write these buckets.
    BucketWrite(Pattern),
    /// `call:PATTERN`: call these tasks.
    Call(Pattern),
    /// `deploy:PATTERN`: bring plugins of these names to other nodes.
    Deploy(Pattern),
    /// `issue`: give others a membership. Only the root key gives it.
    Issue,
    /// `revoke`: end the membership of others. Only the root key gives it.
    Revoke,
}

/// The names that a right covers: 1 to 128 ASCII letters, digits and `-_./:@#+~*`.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Pattern(String);

/// A text that is no right.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is not a right: {why}")]
pub struct RightError {
    text: String,
    why: &'static str,
}

impl Right {
    /// Whether holding `self` allows what `asked` names.
    pub fn covers(&self, asked: &Self) -> bool {
        match (self, asked) {
            (Self::BucketRead(held), Self::BucketRead(name))
            | (Self::BucketWrite(held), Self::BucketWrite(name))
            | (Self::Call(held), Self::Call(name))
            | (Self::Deploy(held), Self::Deploy(name)) => pattern_matches(&held.0, &name.0),
            _ => self == asked,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BucketRead(Pattern(name)) => write!(f, "bucket-read:{name}"),
            Self::BucketWrite(Pattern(name)) => write!(f, "bucket-write:{name}"),
            Self::Call(Pattern(name)) => write!(f, "call:{name}"),
            Self::Deploy(Pattern(name)) => write!(f, "deploy:{name}"),
            Self::Issue => f.write_str("issue"),
            Self::Revoke => f.write_str("revoke"),
        }
    }
}

impl FromStr for Right {
    type Err = RightError;

    fn from_str(text: &str) -> Result<Self, RightError> {
        let error = |why| RightError {
            text: text.chars().take(160).collect(),
            why,
        };
        match text {
            "issue" => return Ok(Self::Issue),
            "revoke" => return Ok(Self::Revoke),
            _ => {}
        }
        let kind = match text.split_once(':') {
            Some(("bucket-read", _)) => Self::BucketRead,
            Some(("bucket-write", _)) => Self::BucketWrite,
            Some(("call", _)) => Self::Call,
            Some(("deploy", _)) => Self::Deploy,
            _ => {
                return Err(error(
                    "the rights are bucket-read:PATTERN, bucket-write:PATTERN, call:PATTERN, deploy:PATTERN, issue \
                     and revoke",
                ));
            }
        };
        let (_, pattern) = text.split_once(':').unwrap_or_default();
        pattern.parse().map(kind).map_err(error)
    }
}

impl Pattern {
    /// The pattern as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Pattern {
    type Err = &'static str;

    // Nothing that would need an escape in a token's text.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let plain = |byte| is_of_a_name(byte) || byte == b'*';
        if text.is_empty() || text.len() > 128 || !text.bytes().all(plain) {
            return Err("a pattern has 1 to 128 letters, digits and `-_./:@#+~*`");
        }
        Ok(Self(text.into()))
    }
}

karman_types::serde_as_text!(Right);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn right(text: &str) -> Right {
        text.parse().unwrap()
    }

    #[test]
    fn rights_read_what_they_write() {
        for text in [
            "bucket-read:road/*",
            "bucket-write:road",
            "call:vision/detect",
            "deploy:*",
            "issue",
            "revoke",
        ] {
            assert_eq!(right(text).to_string(), text);
        }
    }

    #[test]
    fn an_unknown_right_is_answered_with_the_known_ones() {
        for text in ["reboot", "call", "issue:*", "", "Call:x"] {
            let error = text.parse::<Right>().unwrap_err().to_string();
            assert!(error.contains("deploy:PATTERN"), "{error}");
        }
        for text in [
            "call:",
            "call:a b",
            "call:\"",
            "call:é",
            &format!("call:{}", "a".repeat(129)),
        ] {
            assert!(text.parse::<Right>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_right_covers_its_kind_only() {
        assert!(right("call:vision/*").covers(&right("call:vision/detect")));
        assert!(right("call:*").covers(&right("call:vision/*")));
        assert!(!right("call:vision/*").covers(&right("call:*")));
        assert!(!right("bucket-write:*").covers(&right("bucket-read:road")));
        assert!(right("revoke").covers(&right("revoke")));
        assert!(!right("revoke").covers(&right("issue")));
    }

    proptest! {
        /// What a covered pattern allows, the covering one allows too.
        #[test]
        fn covering_passes_on(wide in "[ab*]{1,5}", narrow in "[ab*]{1,5}", name in "[ab]{1,6}") {
            let [wide, narrow, name] = [wide, narrow, name].map(|name| right(&format!("call:{name}")));
            prop_assert!(!(wide.covers(&narrow) && narrow.covers(&name)) || wide.covers(&name));
        }
    }
}
