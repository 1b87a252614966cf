use crate::{KitError, c, js, python, rust};
use karman_types::Language;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where toolchains are looked for: the user's own first, then a folder of tools.
#[derive(Clone, Debug)]
pub struct Tools {
    extra: Option<PathBuf>,
    path: Vec<PathBuf>,
}

/// What there is to build one language with.
#[derive(Debug)]
pub struct Toolchain {
    /// The language.
    pub lang: Language,
    /// The toolchain in one line, or what is missing and how to get it.
    pub found: Result<String, KitError>,
}

impl Tools {
    /// Looks on `PATH`, then in `extra` (the folder that `KARMAN_TOOLS` names). Cheap: nothing is run yet.
    pub fn find(extra: Option<&Path>) -> Self {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self {
            extra: extra.map(Path::to_path_buf),
            path: std::env::split_paths(&path).collect(),
        }
    }

    /// Asks every toolchain what it is: some 100 ms each.
    pub fn report(&self) -> Vec<Toolchain> {
        [Language::Rust, Language::C, Language::Python, Language::Js]
            .map(|lang| Toolchain {
                lang,
                found: match lang {
                    Language::Rust => rust::found(self),
                    Language::C => c::found(self),
                    Language::Python => python::found(self),
                    Language::Js => js::found(self),
                },
            })
            .into()
    }

    /// The folder of tools, if there is one.
    pub(crate) fn extra(&self) -> Option<&Path> {
        self.extra.as_deref()
    }

    /// A program by name: on `PATH`, or in the folder of tools (`bin`, `venv/bin`, `node_modules/.bin`).
    pub(crate) fn program(&self, name: &str) -> Option<PathBuf> {
        let file = format!("{name}{}", std::env::consts::EXE_SUFFIX);
        let of_extra = self
            .extra
            .iter()
            .flat_map(|extra| ["bin", "venv/bin", "node_modules/.bin"].map(|folder| extra.join(folder)));
        self.path
            .iter()
            .cloned()
            .chain(of_extra)
            .map(|folder| folder.join(&file))
            .find(|path| path.is_file())
    }
}

/// Runs a compiler. Its output is the error's when it fails, standard output otherwise.
pub(crate) fn run(lang: Language, command: &mut Command) -> Result<Vec<u8>, KitError> {
    let program = PathBuf::from(command.get_program());
    let output = command.output().map_err(KitError::io(&program))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
    Err(KitError::Compile {
        lang,
        output: match said {
            [err, out] if err.is_empty() && out.is_empty() => {
                format!(
                    "`{}` ended with {} and said nothing",
                    program.display(),
                    output.status
                )
            }
            [err, out] if out.is_empty() => err,
            // Cargo's standard output is messages for programs.
            [err, _] if lang == Language::Rust && !err.is_empty() => err,
            [err, out] => format!("{err}\n{out}").trim().to_owned(),
        },
    })
}

/// The first line that a program prints, as in `zig version`; nothing when it does not run.
pub(crate) fn first_line<A: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = A>,
) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
