//! What stands in the way of a deployment until the operator says that it may be.

use super::DeployOptions;
use karman_package::Identity;
use karman_types::{Grant, TaskError};
use semver::Version;

/// Something that a deployment may do only with the operator's word.
struct Obstacle {
    /// Behind the plugin's name: `newly asks for kv:road`.
    what: String,
    field: Option<&'static str>,
    option: &'static str,
    hint: &'static str,
}

const UNSIGNED: &str =
    "`karman sign FILE --key KEYFILE` signs it; --replace lets an unsigned file take the name over";

/// Whether a plugin of this name may be deployed where `before` serves, if anything does, and with what it newly asks for.
///
/// # Errors
/// `denied`, with all that the operator has to allow.
pub(super) fn check(
    name: &str,
    before: Option<(&Identity, &Version)>,
    new: (&Identity, &Version),
    asks: &[Grant],
    options: DeployOptions,
) -> Result<(), TaskError> {
    let of_before = |(identity, version)| [older(version, new.1, options), other(identity, new.0, options)];
    let found = before.into_iter().flat_map(of_before).flatten();
    let found: Vec<Obstacle> = found.chain(newly_asks(asks, options)).collect();
    let Some(first) = found.first() else {
        return Ok(());
    };
    let what: Vec<&str> = found.iter().map(|obstacle| &*obstacle.what).collect();
    let flags: Vec<&str> = found.iter().map(|obstacle| obstacle.option).collect();
    let hint = match &found[..] {
        [one] => one.hint.to_owned(),
        _ => format!("pass {} if you mean all of it", flags.join(" ")),
    };
    let error = TaskError::denied(format!("`{name}` {}", what.join(", and "))).with_hint(hint);
    Err(match first.field {
        Some(field) => error.with_field(field),
        None => error,
    })
}

fn older(before: &Version, new: &Version, options: DeployOptions) -> Option<Obstacle> {
    (new < before && !options.downgrade).then(|| Obstacle {
        what: format!("{new} is older than {before}, which serves"),
        field: Some("version"),
        option: "--downgrade",
        hint: "pass --downgrade if you mean it",
    })
}

/// Unsigned files succeed each other: nobody's name is taken.
fn other(before: &Identity, new: &Identity, options: DeployOptions) -> Option<Obstacle> {
    if before == new || options.replace {
        return None;
    }
    let (what, hint) = match (before, new) {
        (Identity::Digest(_), Identity::Digest(_)) => return None,
        (Identity::Publisher { key, .. }, Identity::Digest(_)) => {
            let signer = key.short();
            (
                format!("is not signed, and the one that serves is, by {signer}"),
                UNSIGNED,
            )
        }
        _ => (
            format!("serves for {}, not {}", before.short(), new.short()),
            "pass --replace if another publisher may take the name over",
        ),
    };
    Some(Obstacle {
        what,
        field: None,
        option: "--replace",
        hint,
    })
}

fn newly_asks(asks: &[Grant], options: DeployOptions) -> Option<Obstacle> {
    (!asks.is_empty() && !options.grant_asked).then(|| {
        let asks: Vec<String> = asks.iter().map(ToString::to_string).collect();
        Obstacle {
            what: format!("newly asks for {}", asks.join(", ")),
            field: Some("asks"),
            option: "--grant-asked",
            hint: "pass --grant-asked to allow it, or deploy a version that does not ask",
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_package::SecretKey;
    use karman_types::Digest;

    #[test]
    fn all_that_stands_in_the_way_is_told_at_once() {
        let signed = Identity::Publisher {
            key: SecretKey::generate().public(),
            name: "hello".into(),
        };
        let unsigned = Identity::Digest(Digest::of(b"file"));
        let (old, new) = (Version::new(0, 2, 0), Version::new(0, 1, 0));
        let asks: [Grant; 1] = ["kv:road".parse().unwrap()];
        let check = |before, new, asks: &[Grant], options| check("hello", Some(before), new, asks, options);
        let none = DeployOptions::default();

        let error = check((&signed, &old), (&unsigned, &new), &asks, none).unwrap_err();
        for says in [
            "0.1.0 is older than 0.2.0",
            "is not signed",
            "newly asks for kv:road",
        ] {
            assert!(error.message.contains(says), "{error}");
        }
        assert_eq!(
            error.hint.as_deref(),
            Some("pass --downgrade --replace --grant-asked if you mean all of it")
        );
        let all = DeployOptions {
            grant_asked: true,
            downgrade: true,
            replace: true,
        };
        assert_eq!(check((&signed, &old), (&unsigned, &new), &asks, all), Ok(()));
    }

    #[test]
    fn a_file_that_lost_its_signature_is_to_be_signed() {
        let signed = Identity::Publisher {
            key: SecretKey::generate().public(),
            name: "hello".into(),
        };
        let [unsigned, other] = [b"file", b"more"].map(|bytes| Identity::Digest(Digest::of(bytes)));
        let version = Version::new(0, 1, 0);
        let check = |before, new| {
            let (before, new) = ((before, &version), (new, &version));
            check("hello", Some(before), new, &[], DeployOptions::default())
        };
        let error = check(&signed, &unsigned).unwrap_err();
        assert!(
            error
                .hint
                .unwrap()
                .starts_with("`karman sign FILE --key KEYFILE`")
        );
        let error = check(&unsigned, &signed).unwrap_err();
        assert!(error.message.contains("serves for blake3:"), "{error}");
        assert_eq!(check(&unsigned, &other), Ok(()));
    }
}
