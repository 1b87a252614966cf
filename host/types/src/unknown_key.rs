use serde::de::DeserializeOwned;

/// A configuration text that does not say what it should.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// An unknown key.
    #[error("unknown key `{key}` at line {line}{}", nearest.as_ref().map(|n| format!("; did you mean `{n}`?")).unwrap_or_default())]
    Unknown {
        /// The key as written.
        key: String,
        /// Counted from 1.
        line: usize,
        /// The known key that is spelt most alike, if any is close.
        nearest: Option<String>,
    },
    /// Anything else: a missing key, a wrong type, a text that is not TOML.
    #[error("line {line}: {}{message}", key.as_ref().map(|key| format!("`{key}`: ")).unwrap_or_default())]
    Invalid {
        /// The key whose value is wrong, with the tables that it stands in: `mesh.listen`.
        key: Option<String>,
        /// What is wrong.
        message: String,
        /// Counted from 1.
        line: usize,
    },
}

impl KeyError {
    /// The key in question, where it is one key.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Unknown { key, .. } => Some(key),
            Self::Invalid { message, .. } if message.starts_with("missing field ") => {
                message.split('`').nth(1)
            }
            Self::Invalid { key, .. } => key.as_deref(),
        }
    }
}

/// Reads a TOML text into a type that denies unknown fields; a misspelt key is answered with the nearest known one.
///
/// # Errors
/// [`KeyError::Unknown`] for a key that the type does not have, [`KeyError::Invalid`] for the rest.
pub fn from_toml<T: DeserializeOwned>(text: &str) -> Result<T, KeyError> {
    let line = |error: &toml::de::Error| {
        error.span().map_or(1, |span| {
            text[..span.start.min(text.len())].matches('\n').count() + 1
        })
    };
    let toml = toml::Deserializer::parse(text);
    let toml = toml.map_err(|error| {
        let line = line(&error);
        let at = text.lines().nth(line - 1).unwrap_or_default();
        explain(&format!("{}{}", error.message().trim(), quotes(at)), None, line)
    })?;
    serde_path_to_error::deserialize(toml).map_err(|error| {
        // What stands outside of any table has no path.
        let path = error.path().to_string();
        let key = (path != ".").then_some(path);
        let error = error.into_inner();
        explain(error.message(), key, line(&error))
    })
}

/// What to do about a line that is no TOML, where its value is a word: of one that begins like `false` the parser says that it is none.
fn quotes(line: &str) -> String {
    let value = line.split_once('=').map_or("", |(_, value)| value);
    let value = value.split('#').next().unwrap_or_default().trim();
    let is_word = value.starts_with(|c: char| c.is_ascii_alphabetic());
    match is_word && !value.contains(['"', '\'']) {
        true => format!("; text needs quotes: \"{value}\""),
        false => String::new(),
    }
}

/// Serde words an unknown field as "unknown field `a`, expected one of `b`, `c`" (or "expected `b`").
fn explain(message: &str, key: Option<String>, line: usize) -> KeyError {
    if !message.starts_with("unknown field ") {
        let meant = meant(message).map(|meant| format!("; did you mean `{meant}`?"));
        return KeyError::Invalid {
            key: key.filter(|_| !message.starts_with("missing field ")),
            message: format!("{}{}", message.trim(), meant.unwrap_or_default()),
            line,
        };
    }
    let mut names = message.split('`').skip(1).step_by(2);
    let key = names.next().unwrap_or_default().to_owned();
    let nearest = nearest(&key, names);
    KeyError::Unknown { key, line, nearest }
}

/// Of the values that serde lists where one is unknown, the one that was meant, if any is: `rust` for `Rust`.
fn meant(message: &str) -> Option<String> {
    let mut names = message
        .strip_prefix("unknown variant ")?
        .split('`')
        .skip(1)
        .step_by(2);
    let name = names.next()?.to_lowercase();
    // Two letters are not meant by two others.
    let alike = |known: &String| strsim::damerau_levenshtein(&name, known) < name.chars().count();
    nearest(&name, names).filter(alike)
}

/// The known name that is spelt most like this one, if any is close.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<String> {
    known
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 3))
        .min()
        .map(|(_, known)| known.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    struct Config {
        #[expect(dead_code, reason = "only read")]
        memory: u32,
        #[serde(default)]
        #[expect(dead_code, reason = "only read")]
        table_elements: u32,
    }

    #[test]
    fn a_misspelt_key_is_answered_with_the_nearest() {
        let error = from_toml::<Config>("memory = 1\ntable-elemnts = 2\n").unwrap_err();
        assert_eq!(
            error,
            KeyError::Unknown {
                key: "table-elemnts".into(),
                line: 2,
                nearest: Some("table-elements".into())
            }
        );
        assert!(error.to_string().contains("did you mean `table-elements`?"));
    }

    #[test]
    fn a_text_without_quotes_is_told_as_such() {
        for (line, quoted) in [
            ("tier = fog", Some("\"fog\"")),
            ("tier = cloud # far away", Some("\"cloud\"")),
            ("tier = \"fog", None),
            ("tier = [1", None),
        ] {
            let error = from_toml::<Config>(&format!("memory = 1\n{line}\n")).unwrap_err();
            let says = error.to_string();
            let told = says.split_once("; text needs quotes: ").map(|(_, quoted)| quoted);
            assert_eq!(told, quoted, "{says}");
        }
    }

    #[test]
    fn a_key_like_no_other_gets_no_suggestion() {
        let error = from_toml::<Config>("memory = 1\nzzzzzz = 2\n").unwrap_err();
        assert!(
            matches!(error, KeyError::Unknown { nearest: None, .. }),
            "{error}"
        );
    }

    #[test]
    fn a_wrong_value_is_told_with_its_key() {
        #[derive(Debug, Deserialize)]
        struct Nested {
            #[expect(dead_code, reason = "only read")]
            limits: Config,
        }
        let error = from_toml::<Nested>("[limits]\nmemory = \"much\"\n").unwrap_err();
        assert_eq!(error.key(), Some("limits.memory"));
        assert!(
            error.to_string().starts_with("line 2: `limits.memory`: "),
            "{error}"
        );
    }

    #[test]
    fn a_misspelt_value_is_answered_with_the_nearest() {
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "lowercase")]
        enum Lang {
            Rust,
            C,
            Js,
        }
        #[derive(Debug, Deserialize)]
        struct Build {
            #[expect(dead_code, reason = "only read")]
            lang: Lang,
        }
        for (given, meant) in [
            ("C", Some("c")),
            ("Rust", Some("rust")),
            ("rst", Some("rust")),
            ("go", None),
        ] {
            let error = from_toml::<Build>(&format!("lang = \"{given}\""))
                .unwrap_err()
                .to_string();
            let said = error.split_once("; did you mean ").map(|(_, meant)| meant);
            assert_eq!(
                said,
                meant.map(|meant| format!("`{meant}`?")).as_deref(),
                "{error}"
            );
        }
    }

    #[test]
    fn a_missing_key_and_bad_syntax_are_told_apart() {
        assert_eq!(from_toml::<Config>("").unwrap_err().key(), Some("memory"));
        assert!(matches!(
            from_toml::<Config>("memory = ").unwrap_err(),
            KeyError::Invalid { .. }
        ));
    }
}
