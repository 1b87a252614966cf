use karman_types::World;
use semver::Version;

/// The interfaces that nodes offer to plugins: package and version. A version of two numbers stands for every release
/// under it, any other for itself alone.
pub const OFFERED: &[(&str, &str)] = &[
    ("karman:federated", "0.1"),
    ("karman:gpu", "0.1"),
    ("karman:task", "0.1"),
    ("wasi:cli", "0.2"),
    ("wasi:cli", "0.3"),
    ("wasi:clocks", "0.2"),
    ("wasi:clocks", "0.3"),
    ("wasi:config", "0.2.0-rc.1"),
    ("wasi:filesystem", "0.2"),
    ("wasi:filesystem", "0.3"),
    ("wasi:http", "0.2"),
    ("wasi:http", "0.3"),
    ("wasi:io", "0.2"),
    ("wasi:keyvalue", "0.2.0-draft"),
    ("wasi:logging", "0.1.0-draft"),
    ("wasi:nn", "0.2.0-rc-2024-10-28"),
    ("wasi:random", "0.2"),
    ("wasi:random", "0.3"),
    ("wasi:sockets", "0.2"),
    ("wasi:sockets", "0.3"),
];

/// The export that makes a component one of this world.
const EXPORTS: &[(&str, &str, World)] = &[
    ("karman:task/handler", "0.1", World::Task),
    ("karman:task/stream-handler", "0.1", World::TaskStream),
    ("karman:federated/learner", "0.1", World::Client),
    ("karman:federated/aggregator", "0.1", World::Strategy),
    ("karman:policy/selector", "0.1", World::PolicySelect),
    ("karman:policy/router", "0.1", World::PolicyRoute),
    ("karman:policy/placer", "0.1", World::PolicyPlace),
    ("wasi:http/incoming-handler", "0.2", World::Http),
    ("wasi:http/handler", "0.3", World::Http),
    ("wasi:cli/run", "0.2", World::Command),
    ("wasi:cli/run", "0.3", World::Command),
];

/// Whether a node can give a plugin this import.
pub(crate) fn is_offered(import: &str) -> bool {
    let Some((interface, version)) = import.split_once('@') else {
        return false;
    };
    let Some((package, _)) = interface.split_once('/') else {
        return false;
    };
    OFFERED
        .iter()
        .any(|(name, known)| *name == package && version_matches(known, version))
}

/// The worlds that these exported instances make, the most special first, each once.
pub(crate) fn worlds<'a>(exports: impl Iterator<Item = &'a str> + Clone) -> Vec<World> {
    let mut found = Vec::new();
    for (interface, version, world) in EXPORTS {
        if exports.clone().any(|export| is(export, interface, version)) && !found.contains(world) {
            found.push(*world);
        }
    }
    found
}

/// Whether this export is `karman:task/lifecycle`.
pub(crate) fn is_lifecycle(export: &str) -> bool {
    is(export, "karman:task/lifecycle", "0.1")
}

fn is(name: &str, interface: &str, version: &str) -> bool {
    name.split_once('@')
        .is_some_and(|(found, at)| found == interface && version_matches(version, at))
}

fn version_matches(known: &str, version: &str) -> bool {
    let Ok(parsed) = Version::parse(version) else {
        return false;
    };
    match known.split_once('.') {
        Some((major, minor)) if !minor.contains('.') => {
            parsed.pre.is_empty() && major == parsed.major.to_string() && minor == parsed.minor.to_string()
        }
        _ => known == version,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_an_offered_version_are_offered_and_nothing_else() {
        for import in [
            "wasi:cli/environment@0.2.6",
            "wasi:http/types@0.3.0",
            "wasi:nn/graph@0.2.0-rc-2024-10-28",
            "wasi:keyvalue/store@0.2.0-draft",
            "karman:task/types@0.1.7",
        ] {
            assert!(is_offered(import), "{import}");
        }
        for import in [
            "wasi:cli/environment",
            "wasi:cli/environment@0.2.0-rc-2023-12-05",
            "wasi:cli/environment@0.20.0",
            "wasi:cli@0.2.0",
            "wasi:nn/graph@0.2.0",
            "wasi:keyvalue/store@0.2.0",
            "karman:task/types@1.0.0",
            "acme:secret/door@0.2.0",
            "log",
            "",
        ] {
            assert!(!is_offered(import), "{import}");
        }
    }

    #[test]
    fn worlds_are_found_by_their_exports() {
        let found = |exports: &[&'static str]| worlds(exports.iter().copied());
        assert_eq!(found(&["karman:task/handler@0.1.3"]), [World::Task]);
        assert_eq!(found(&["karman:task/stream-handler@0.1.0"]), [World::TaskStream]);
        assert_eq!(found(&["karman:federated/learner@0.1.0"]), [World::Client]);
        assert_eq!(found(&["karman:federated/aggregator@0.1.0"]), [World::Strategy]);
        assert_eq!(found(&["karman:policy/selector@0.1.0"]), [World::PolicySelect]);
        assert_eq!(found(&["karman:policy/router@0.1.0"]), [World::PolicyRoute]);
        assert_eq!(found(&["karman:policy/placer@0.1.0"]), [World::PolicyPlace]);
        assert_eq!(found(&["wasi:http/incoming-handler@0.2.9"]), [World::Http]);
        assert_eq!(found(&["wasi:http/handler@0.3.0"]), [World::Http]);
        assert_eq!(found(&["wasi:http/handler@0.2.0"]), []);
        assert_eq!(
            found(&[
                "wasi:cli/run@0.3.0",
                "wasi:cli/run@0.2.0",
                "karman:task/handler@0.1.0"
            ]),
            [World::Task, World::Command]
        );
    }
}
