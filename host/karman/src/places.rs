use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where this user's node keeps things.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Places {
    /// State and keys.
    pub(crate) state: PathBuf,
    /// Compiled code.
    pub(crate) cache: PathBuf,
    /// The configuration, where there is one.
    pub(crate) config: Option<PathBuf>,
    /// The folder of guest toolchains, where one is named.
    pub(crate) tools: Option<PathBuf>,
}

impl Places {
    /// What the flags say, then `KARMAN_…`, then the folders of the XDG specification, then those of a system
    /// service.
    pub(crate) fn find(
        state: Option<PathBuf>,
        config: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<OsString>,
        exists: impl Fn(&Path) -> bool,
    ) -> Self {
        let path = |name: &str| {
            variable(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        // A relative path there is to be ignored, says the specification.
        let base = |name: &str, below_home: &str| {
            let home = || path("HOME").map(|home| home.join(below_home));
            path(name).filter(|path| path.is_absolute()).or_else(home)
        };
        let of_config = || {
            let user = base("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("karman/node.toml"));
            user.into_iter()
                .chain([PathBuf::from("/etc/karman/node.toml")])
                .find(|path| exists(path))
        };
        let data = || base("XDG_DATA_HOME", ".local/share").map(|folder| folder.join("karman"));
        let cache = || base("XDG_CACHE_HOME", ".cache").map(|folder| folder.join("karman/compiled"));
        Self {
            state: state
                .or_else(|| path("KARMAN_STATE"))
                .or_else(data)
                .unwrap_or_else(|| "/var/lib/karman".into()),
            cache: path("KARMAN_CACHE")
                .or_else(cache)
                .unwrap_or_else(|| "/var/cache/karman/compiled".into()),
            config: config.or_else(|| path("KARMAN_CONFIG")).or_else(of_config),
            tools: path("KARMAN_TOOLS"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)], files: &[&str]) -> Places {
        let variable = |name: &str| {
            variables
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        };
        Places::find(None, None, variable, |path| {
            files.iter().any(|file| Path::new(file) == path)
        })
    }

    #[test]
    fn the_users_folders_come_before_the_systems() {
        let places = find(
            &[("HOME", "/home/ada"), ("XDG_CACHE_HOME", "/fast")],
            &["/etc/karman/node.toml"],
        );
        assert_eq!(places.state, Path::new("/home/ada/.local/share/karman"));
        assert_eq!(places.cache, Path::new("/fast/karman/compiled"));
        assert_eq!(places.config.as_deref(), Some(Path::new("/etc/karman/node.toml")));
    }

    #[test]
    fn a_variable_of_ours_comes_before_the_users_folders() {
        let ours = [
            ("KARMAN_STATE", "/node/state"),
            ("KARMAN_CONFIG", "/node/node.toml"),
        ];
        let places = find(
            &[&ours[..], &[("HOME", "/home/ada")]].concat(),
            &["/etc/karman/node.toml"],
        );
        assert_eq!(places.state, Path::new("/node/state"));
        assert_eq!(places.config.as_deref(), Some(Path::new("/node/node.toml")));
    }

    #[test]
    fn a_service_without_a_home_uses_var() {
        let places = find(&[("XDG_DATA_HOME", "relative")], &[]);
        assert_eq!(
            (places.state.to_str(), places.config),
            (Some("/var/lib/karman"), None)
        );
    }
}
