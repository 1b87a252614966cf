//! Where an ONNX Runtime may lie on this machine.

use std::path::{Path, PathBuf};

/// The environment as far as it says where libraries are. Read once, at the door; nothing below reads variables.
#[derive(Clone, Debug, Default)]
pub struct SearchPlaces {
    /// Folders with shared libraries: `LD_LIBRARY_PATH`.
    pub libraries: Vec<PathBuf>,
    /// Roots of Python installations, each with `lib/python3.*/site-packages`: `VIRTUAL_ENV`, those of `PATH`, of pyenv, and
    /// of the user.
    pub pythons: Vec<PathBuf>,
}

impl SearchPlaces {
    /// What `LD_LIBRARY_PATH`, `VIRTUAL_ENV`, `PATH` and `HOME` say.
    pub fn from_env() -> Self {
        let paths = |name| -> Vec<PathBuf> {
            std::env::var_os(name)
                .map(|value| {
                    std::env::split_paths(&value)
                        .filter(|p| p.is_absolute())
                        .collect()
                })
                .unwrap_or_default()
        };
        let mut pythons = paths("VIRTUAL_ENV");
        pythons.extend(paths("PATH").iter().filter_map(|bin| {
            let python = bin.join("python3").canonicalize().ok()?;
            Some(python.parent()?.parent()?.to_path_buf())
        }));
        for home in paths("HOME") {
            pythons.push(home.join(".local"));
            pythons.extend(children(&home.join(".pyenv/versions"), ""));
        }
        Self {
            libraries: paths("LD_LIBRARY_PATH"),
            pythons,
        }
    }

    /// The libraries that are there: those of the environment first, then those of the system, then those within Python
    /// packages (`pip install onnxruntime`); each once.
    pub fn find(&self) -> Vec<PathBuf> {
        let machine = format!("/usr/lib/{}-linux-gnu", std::env::consts::ARCH);
        let system = [
            "/usr/local/lib",
            &machine,
            "/usr/lib",
            "/usr/lib64",
            "/opt/onnxruntime/lib",
            "/opt/homebrew/lib",
        ];
        let mut folders = self.libraries.clone();
        folders.extend(system.map(PathBuf::from));
        for root in self
            .pythons
            .iter()
            .map(PathBuf::as_path)
            .chain([Path::new("/usr/local"), Path::new("/usr")])
        {
            for python in children(&root.join("lib"), "python3") {
                for packages in ["site-packages", "dist-packages"] {
                    folders.push(python.join(packages).join("onnxruntime/capi"));
                }
            }
        }
        let mut found: Vec<PathBuf> = Vec::new();
        for path in folders.iter().filter_map(|folder| newest(folder)) {
            if !found.contains(&path) {
                found.push(path);
            }
        }
        found
    }
}

/// The library in this folder; the highest version where there are several.
fn newest(folder: &Path) -> Option<PathBuf> {
    children(folder, "")
        .into_iter()
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?;
            let rest = name
                .strip_prefix("libonnxruntime.")
                .or_else(|| name.strip_prefix("onnxruntime."))?;
            let version: Vec<u32> = rest.split('.').filter_map(|part| part.parse().ok()).collect();
            let kind = rest.split('.').any(|part| matches!(part, "so" | "dylib" | "dll"));
            kind.then(|| (version, path.canonicalize().unwrap_or(path)))
        })
        .max()
        .map(|(_, path)| path)
}

fn children(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_library_of_a_wheel_is_found() {
        let root = tempfile::tempdir().unwrap();
        let capi = root.path().join("lib/python3.12/site-packages/onnxruntime/capi");
        std::fs::create_dir_all(&capi).unwrap();
        for name in [
            "libonnxruntime.so.1.9.0",
            "libonnxruntime.so.1.31.1",
            "libonnxruntime_providers_shared.so",
        ] {
            std::fs::write(capi.join(name), "").unwrap();
        }
        let places = SearchPlaces {
            pythons: vec![root.path().into()],
            ..SearchPlaces::default()
        };
        let found = places.find();
        let expected = capi.canonicalize().unwrap().join("libonnxruntime.so.1.31.1");
        assert!(found.contains(&expected), "{found:?}");
    }
}
