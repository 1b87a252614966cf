//! Plugins and the guests of tests, each built to `target/guests/NAME.wasm` when it or what it is built with has changed.

mod foreign;
mod stage;

use crate::run::{root, timed, tools};
use crate::setup;
use anyhow::{Context, Result, bail, ensure};
use karman_kit::{Project, Tools, build};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A component to build.
struct Guest {
    /// The name of the file.
    name: String,
    /// The sources: a folder of `plugins/` or `tests/guests/`.
    sources: PathBuf,
    /// A feature of its crate that is on in this variant.
    feature: Option<&'static str>,
}

/// Guests that are built once more with a feature: guest, feature.
const VARIANTS: [(&str, &str); 2] = [("warm", "v2"), ("warm", "broken")];

/// What every guest is built with: the worlds, the kit, and what writes a manifest into a component.
const BUILT_BY: [&str; 7] = [
    "wit",
    "host/kit/src",
    "host/package/src",
    "host/types/src/manifest.rs",
    "host/types/src/contract.rs",
    "host/types/src/grant.rs",
    "host/types/src/limits.rs",
];

/// Files of a guest that name what it is built with outside of its own folder.
const NAMING: [&str; 4] = ["Cargo.toml", "src/lib.rs", "src/digits.rs", "learn/src/lib.rs"];

/// Sources outside a guest's own folder that some are built with: as a file of [`NAMING`] names them, and the folder or file that they are.
const SHARED: [(&str, &str); 9] = [
    ("host/tensor", "host/tensor/Cargo.toml"),
    ("host/tensor", "host/tensor/src"),
    ("tests/data/digits.bin", "tests/data/digits.bin"),
    ("flood/scene", "plugins/flood/scene"),
    ("../../adam.rs", "plugins/adam.rs"),
    ("../../answer.rs", "plugins/answer.rs"),
    ("../../learner.rs", "plugins/learner.rs"),
    ("../../nn.rs", "plugins/nn.rs"),
    ("../../vectors.rs", "plugins/vectors.rs"),
];

/// Builds these guests, or all. A guest in Rust keeps one core busy, and the others the second.
pub(crate) fn guests(names: &[String]) -> Result<()> {
    let mut all = find(&root().join("plugins"))?;
    all.extend(find(&root().join("tests/guests"))?);
    for (name, feature) in VARIANTS {
        if let Some(sources) = all
            .iter()
            .find(|guest| guest.name == name)
            .map(|guest| guest.sources.clone())
        {
            all.push(Guest {
                name: format!("{name}-{feature}"),
                sources,
                feature: Some(feature),
            });
        }
    }
    for name in names {
        let known = || {
            all.iter()
                .map(|guest| guest.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        ensure!(
            all.iter().any(|guest| guest.name == *name),
            "there is no guest `{name}`; there are {}",
            known()
        );
    }
    all.retain(|guest| names.is_empty() || names.contains(&guest.name));
    let (rust, others): (Vec<_>, Vec<_>) = all
        .iter()
        .partition(|guest| guest.sources.join("Cargo.toml").exists());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for guests in [rust, others] {
            let failed = &failed;
            scope.spawn(move || {
                for guest in guests {
                    if let Err(error) = guest.bring_up_to_date() {
                        let error = format!("{}: {error:#}", guest.name);
                        failed.lock().expect("no thread panics with it").push(error);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_default();
    match failed.is_empty() {
        true => Ok(()),
        false => bail!("{}", failed.join("\n\n")),
    }
}

/// What of [`SHARED`] the guest of this folder is built with.
fn shared(sources: &Path) -> Vec<&'static str> {
    let written_with = NAMING.map(|file| fs::read_to_string(sources.join(file)).unwrap_or_default());
    let named = |name: &str| written_with.iter().any(|text| text.contains(name));
    let taken = SHARED.into_iter().filter(|(name, _)| named(name));
    taken.map(|(_, path)| path).collect()
}

fn find(folder: &Path) -> Result<Vec<Guest>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut guests = Vec::new();
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        let sources = entry?.path();
        let files = ["karman.toml", "Cargo.toml", "package.json", "app.js"];
        if files.iter().any(|file| sources.join(file).exists()) {
            let name = sources
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            guests.push(Guest {
                name,
                sources,
                feature: None,
            });
        }
    }
    guests.sort_by(|one, two| one.name.cmp(&two.name));
    Ok(guests)
}

/// Puts what `build` makes of these inputs in the place of a file. Whatever is interrupted is made again: the file is whole or as it was, and
/// has a stamp only where it is of the inputs that this says.
fn renew(file: &Path, stamp: &Path, inputs: &str, build: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
    if stamp.exists() {
        fs::remove_file(stamp)?;
    }
    let part = file.with_extension("part");
    fs::write(&part, build()?)?;
    fs::rename(part, file)?;
    Ok(fs::write(stamp, inputs)?)
}

impl Guest {
    fn bring_up_to_date(&self) -> Result<()> {
        let folder = root().join("target/guests");
        fs::create_dir_all(&folder)?;
        let (file, stamp) = (self.file(&folder, "wasm"), self.file(&folder, "stamp"));
        let inputs = self.inputs()?;
        if file.exists() && fs::read_to_string(&stamp).is_ok_and(|built| built == inputs) {
            return Ok(());
        }
        timed(&self.name, || renew(&file, &stamp, &inputs, || self.build()))
    }

    fn build(&self) -> Result<Vec<u8>> {
        let foreign = !self.sources.join("karman.toml").exists();
        let folder = match self.sources.starts_with(root().join("plugins")) {
            true => self.sources.clone(),
            false => stage::stage(&self.name, &self.sources, self.feature, foreign)?,
        };
        let project = Project::open(&folder)?;
        let built = build(&project, &Tools::find(Some(&tools())), &mut |_| {})?;
        let component = fs::read(built.path)?;
        match foreign {
            true => foreign::without_manifest(&component).context("not a component"),
            false => Ok(component),
        }
    }

    /// What the component depends on, as one digest.
    fn inputs(&self) -> Result<String> {
        let mut hash = blake3::Hasher::new();
        hash.update(self.feature.unwrap_or_default().as_bytes());
        for recipe in setup::RECIPES {
            hash.update(recipe.as_bytes());
        }
        let outside = BUILT_BY.into_iter().chain(shared(&self.sources));
        let outside = outside.map(|path| root().join(path));
        for folder in std::iter::once(self.sources.clone()).chain(outside) {
            for (path, file) in stage::files(&folder)? {
                hash.update(path.to_string_lossy().as_bytes());
                hash.update_reader(fs::File::open(file)?)?;
            }
        }
        Ok(hash.finalize().to_string())
    }

    fn file(&self, folder: &Path, extension: &str) -> PathBuf {
        folder.join(format!("{}.{extension}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change to what several guests share is a change to each.
    #[test]
    fn shared_sources_count_to_those_that_take_them() {
        let of = |name: &str| shared(&root().join("plugins").join(name));
        assert_eq!(of("flood-capture"), ["plugins/flood/scene", "plugins/answer.rs"]);
        assert_eq!(of("classify"), ["plugins/answer.rs", "plugins/nn.rs"]);
        let of_flood = [
            "plugins/flood/scene",
            "plugins/adam.rs",
            "plugins/learner.rs",
            "plugins/vectors.rs",
        ];
        assert_eq!(of("fed-flood"), of_flood);
        assert_eq!(of("fed-pothole"), of_flood[1..]);
        assert_eq!(of("fed-digits"), ["tests/data/digits.bin", "plugins/learner.rs"]);
        assert_eq!(of("split-worker"), ["host/tensor/Cargo.toml", "host/tensor/src"]);
        assert!(of("event-screen").is_empty());
        for path in SHARED.map(|(_, path)| path).into_iter().chain(BUILT_BY) {
            assert!(!stage::files(&root().join(path)).unwrap().is_empty(), "{path}");
        }
    }

    #[test]
    fn a_build_that_comes_to_nothing_leaves_the_file_without_a_stamp() {
        let folder = std::env::temp_dir().join(format!("karman-guests-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, stamp) = (folder.join("one.wasm"), folder.join("one.stamp"));
        renew(&file, &stamp, "first", || Ok(b"whole".to_vec())).unwrap();
        let of = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!((of(&file), of(&stamp)), ("whole".into(), "first".into()));
        // The first inputs may come back: what there is then is not known to be of them.
        let broken = renew(&file, &stamp, "second", || bail!("interrupted"));
        assert!(broken.is_err() && !stamp.exists());
        assert_eq!(of(&file), "whole");
        fs::remove_dir_all(folder).unwrap();
    }
}
