use crate::KitError;
use include_dir::{Dir, include_dir};
use karman_types::{Language, World};
use std::path::{Path, PathBuf};

static RUST: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/rust");
static C: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/c");
static PYTHON: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/python");
static JS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/js");
static RUST_POLICY: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/rust-policy");
static PYTHON_POLICY: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/python-policy");
static RUST_ROUTE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/rust-route");
static RUST_PLACE: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/rust-place");
static RUST_STRATEGY: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/templates/rust-strategy");
static TASK_WIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../wit/task");
static POLICY_WIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../wit/policy");
static FEDERATED_WIT: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../wit/federated");

/// The project's own world: the place to import more.
const TASK_WORLD: &str = include_str!("../templates/plugin.wit");
const POLICY_WORLD: &str = include_str!("../templates/policy.wit");
const ROUTE_WORLD: &str = include_str!("../templates/route.wit");
const PLACE_WORLD: &str = include_str!("../templates/place.wit");
const STRATEGY_WORLD: &str = include_str!("../templates/strategy.wit");
const IGNORED: &str = "/build\n/target\nnode_modules\n__pycache__\n";

/// Writes a project that builds and runs as it is into `dir`, which must be empty or not exist: `karman.toml`, sources,
/// `wit/` and a README. Gives the files written, relative to `dir`.
///
/// # Errors
/// When the name does not suit a plugin, the folder has something in it, there is no template of this world in this language, or a
/// file cannot be written.
pub fn create(dir: &Path, name: &str, lang: Language, world: World) -> Result<Vec<PathBuf>, KitError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let letter_first = name.starts_with(|c: char| c.is_ascii_lowercase());
    if !(letter_first && name.len() <= 64 && name.chars().all(plain)) {
        return Err(KitError::Name { name: name.into() });
    }
    if std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(KitError::WrongLayout {
            path: dir.into(),
            problem: "is not empty; name a new folder".into(),
        });
    }
    let template = match (world, lang) {
        (World::Task, Language::Rust) => &RUST,
        (World::Task, Language::C) => &C,
        (World::Task, Language::Python) => &PYTHON,
        (World::Task, Language::Js) => &JS,
        (World::PolicySelect, Language::Rust) => &RUST_POLICY,
        (World::PolicySelect, Language::Python) => &PYTHON_POLICY,
        (World::PolicyRoute, Language::Rust) => &RUST_ROUTE,
        (World::PolicyPlace, Language::Rust) => &RUST_PLACE,
        (World::Strategy, Language::Rust) => &RUST_STRATEGY,
        _ => return Err(KitError::NoTemplate { world, lang }),
    };
    let mut new = New {
        dir,
        name,
        written: Vec::new(),
    };
    // The suffix keeps cargo and editors from taking a template for a project.
    let as_named = |path: &Path| match path.extension() {
        Some(suffix) if suffix == "in" => path.with_extension(""),
        _ => path.into(),
    };
    new.folder(template, &as_named)?;
    let text = match world {
        World::PolicySelect => {
            new.package(&POLICY_WIT, "wit/deps/policy")?;
            POLICY_WORLD
        }
        World::PolicyRoute => {
            new.package(&POLICY_WIT, "wit/deps/policy")?;
            ROUTE_WORLD
        }
        World::PolicyPlace => {
            new.package(&POLICY_WIT, "wit/deps/policy")?;
            PLACE_WORLD
        }
        World::Strategy => {
            new.package(&FEDERATED_WIT, "wit/deps/federated")?;
            // The words of errors, which clients use.
            new.package(&TASK_WIT, "wit/deps/task")?;
            STRATEGY_WORLD
        }
        _ => {
            new.folder(&TASK_WIT, &|path| match path.starts_with("deps") {
                true => Path::new("wit").join(path),
                false => Path::new("wit/deps/task").join(path),
            })?;
            TASK_WORLD
        }
    };
    new.file(Path::new("wit/plugin.wit"), text)?;
    new.file(Path::new(".gitignore"), IGNORED)?;
    new.written.sort();
    Ok(new.written)
}

/// A project on its way to disk.
struct New<'a> {
    dir: &'a Path,
    name: &'a str,
    written: Vec<PathBuf>,
}

impl New<'_> {
    fn folder(&mut self, folder: &Dir<'_>, place: &dyn Fn(&Path) -> PathBuf) -> Result<(), KitError> {
        for file in folder.files() {
            self.file(&place(file.path()), file.contents_utf8().unwrap_or_default())?;
        }
        folder.dirs().try_for_each(|inner| self.folder(inner, place))
    }

    /// The interfaces of one package, without those that it uses.
    fn package(&mut self, wit: &Dir<'_>, place: &str) -> Result<(), KitError> {
        wit.files().try_for_each(|file| {
            let text = file.contents_utf8().unwrap_or_default();
            self.file(&Path::new(place).join(file.path()), text)
        })
    }

    fn file(&mut self, path: &Path, text: &str) -> Result<(), KitError> {
        let whole = self.dir.join(path);
        let parent = whole.parent().unwrap_or(self.dir);
        std::fs::create_dir_all(parent).map_err(KitError::io(parent))?;
        std::fs::write(&whole, text.replace("{{name}}", self.name)).map_err(KitError::io(&whole))?;
        self.written.push(path.into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Project;

    #[test]
    fn every_language_has_a_project_that_reads() {
        for lang in [Language::Rust, Language::C, Language::Python, Language::Js] {
            let dir = tempfile::tempdir().unwrap();
            let written = create(dir.path(), "hello", lang, World::Task).unwrap();
            for file in [
                "karman.toml",
                "README.md",
                ".gitignore",
                "wit/plugin.wit",
                "wit/deps/task/task.wit",
            ] {
                assert!(
                    written.contains(&file.into()),
                    "{lang:?} lacks {file}: {written:?}"
                );
            }
            let project = Project::open(dir.path()).unwrap();
            assert_eq!(project.manifest.name, "hello");
            assert_eq!(project.language().unwrap(), lang);
            let (resolve, world) = project.world().unwrap();
            assert_eq!(resolve.worlds[world].exports.len(), 1);
        }
    }

    #[test]
    fn a_policy_is_a_project_too() {
        for lang in [Language::Rust, Language::Python] {
            let dir = tempfile::tempdir().unwrap();
            let written = create(dir.path(), "cheap", lang, World::PolicySelect).unwrap();
            assert!(
                written.contains(&"wit/deps/policy/select.wit".into()),
                "{written:?}"
            );
            let project = Project::open(dir.path()).unwrap();
            assert_eq!(project.manifest.world, World::PolicySelect);
            assert!(project.manifest.limits.fuel.is_some());
            let (resolve, world) = project.world().unwrap();
            let world = &resolve.worlds[world];
            assert_eq!((world.exports.len(), world.imports.len()), (1, 0));
        }
        let dir = tempfile::tempdir().unwrap();
        let error = create(dir.path(), "cheap", Language::C, World::PolicySelect).unwrap_err();
        assert!(error.to_string().contains("rust or python"), "{error}");
    }

    #[test]
    fn so_is_one_that_routes_and_one_that_places() {
        for (of, text) in [
            (World::PolicyRoute, "wit/deps/policy/route.wit"),
            (World::PolicyPlace, "wit/deps/policy/place.wit"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let written = create(dir.path(), "near", Language::Rust, of).unwrap();
            assert!(written.contains(&text.into()), "{written:?}");
            let project = Project::open(dir.path()).unwrap();
            assert_eq!(project.manifest.world, of);
            assert!(project.manifest.limits.fuel.is_some());
            let (resolve, world) = project.world().unwrap();
            let world = &resolve.worlds[world];
            assert_eq!((world.exports.len(), world.imports.len()), (1, 0));
            let dir = tempfile::tempdir().unwrap();
            let error = create(dir.path(), "near", Language::Python, of).unwrap_err();
            assert!(
                error.to_string().contains("one that routes or places in rust"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_strategy_is_a_project_too() {
        let dir = tempfile::tempdir().unwrap();
        let written = create(dir.path(), "mean", Language::Rust, World::Strategy).unwrap();
        for file in ["wit/deps/federated/strategy.wit", "wit/deps/task/task.wit"] {
            assert!(written.contains(&file.into()), "{written:?}");
        }
        let project = Project::open(dir.path()).unwrap();
        assert_eq!(project.manifest.world, World::Strategy);
        let (resolve, world) = project.world().unwrap();
        let world = &resolve.worlds[world];
        // What it imports are types.
        assert_eq!((world.exports.len(), world.imports.len()), (1, 1));
        let dir = tempfile::tempdir().unwrap();
        let error = create(dir.path(), "mean", Language::Python, World::Strategy).unwrap_err();
        assert!(error.to_string().contains("a strategy in rust"), "{error}");
    }

    #[test]
    fn no_placeholder_is_left() {
        for world in [
            World::Task,
            World::PolicySelect,
            World::PolicyRoute,
            World::PolicyPlace,
            World::Strategy,
        ] {
            let dir = tempfile::tempdir().unwrap();
            for file in create(dir.path(), "hello", Language::Rust, world).unwrap() {
                let text = std::fs::read_to_string(dir.path().join(&file)).unwrap();
                assert!(
                    !text.is_empty() && !text.contains("{{name}}"),
                    "{}",
                    file.display()
                );
            }
        }
    }

    #[test]
    fn bad_names_and_full_folders_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["", "Hello", "3d", "a b", "../up", &"a".repeat(65)] {
            let error = create(dir.path(), name, Language::C, World::Task).unwrap_err();
            assert!(matches!(error, KitError::Name { .. }), "{error}");
        }
        std::fs::write(dir.path().join("mine"), "").unwrap();
        let error = create(dir.path(), "hello", Language::C, World::Task).unwrap_err();
        assert!(error.to_string().contains("is not empty"), "{error}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
