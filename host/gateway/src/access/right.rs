use karman_mesh::membership::Pattern;
use karman_types::pattern_matches;
use std::fmt;
use std::str::FromStr;

/// What a caller may do at the gateway, written `kind` or `kind:pattern`. `*` in a pattern stands for any run of characters.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Right {
    /// `infer:PATTERN`: run these models and tasks by the inference protocol, and see what they take.
    Infer(Pattern),
    /// `call:PATTERN`: call these tasks, and have them accepted.
    Call(Pattern),
    /// `http:PATTERN`: reach these HTTP plugins.
    Http(Pattern),
    /// `flow:PATTERN`: submit these workflows.
    Flow(Pattern),
    /// `metrics`: read what the gateway measures.
    Metrics,
    /// `admin`: see how the mesh is run, and take this node out of service.
    Admin,
    /// `manage`: what `admin` is for; bring plugins into service and out of it, change what they hold, invite nodes.
    Manage,
}

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
            (Self::Infer(held), Self::Infer(name))
            | (Self::Call(held), Self::Call(name))
            | (Self::Http(held), Self::Http(name))
            | (Self::Flow(held), Self::Flow(name)) => pattern_matches(held.as_str(), name.as_str()),
            (Self::Manage, Self::Admin) => true,
            _ => self == asked,
        }
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Infer(name) => write!(f, "infer:{}", name.as_str()),
            Self::Call(name) => write!(f, "call:{}", name.as_str()),
            Self::Http(name) => write!(f, "http:{}", name.as_str()),
            Self::Flow(name) => write!(f, "flow:{}", name.as_str()),
            Self::Metrics => f.write_str("metrics"),
            Self::Admin => f.write_str("admin"),
            Self::Manage => f.write_str("manage"),
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
        let kind = match text.split_once(':') {
            None if text == "metrics" => return Ok(Self::Metrics),
            None if text == "admin" => return Ok(Self::Admin),
            None if text == "manage" => return Ok(Self::Manage),
            Some(("infer", _)) => Self::Infer,
            Some(("call", _)) => Self::Call,
            Some(("http", _)) => Self::Http,
            Some(("flow", _)) => Self::Flow,
            _ => {
                return Err(error(
                    "the rights are infer:PATTERN, call:PATTERN, http:PATTERN, flow:PATTERN, metrics, admin and manage",
                ));
            }
        };
        let (_, pattern) = text.split_once(':').unwrap_or_default();
        pattern.parse().map(kind).map_err(error)
    }
}

karman_types::serde_as_text!(Right);

#[cfg(test)]
mod tests {
    use super::*;

    fn right(text: &str) -> Right {
        text.parse().unwrap()
    }

    #[test]
    fn rights_read_what_they_write() {
        for text in [
            "infer:digits-*",
            "call:vision/detect",
            "http:*",
            "flow:flood",
            "metrics",
            "admin",
            "manage",
        ] {
            assert_eq!(right(text).to_string(), text);
        }
        for text in ["infer", "infer:", "metrics:*", "root", "", "call:a b"] {
            let error = text.parse::<Right>().unwrap_err().to_string();
            assert!(error.contains("is not a right"), "{error}");
        }
    }

    #[test]
    fn a_right_covers_its_kind_only() {
        assert!(right("infer:digits-*").covers(&right("infer:digits-m")));
        assert!(!right("infer:*").covers(&right("call:digits-m")));
        assert!(!right("infer:digits-m").covers(&right("infer:*")));
        assert!(!right("admin").covers(&right("metrics")));
    }
}
