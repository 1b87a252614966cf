//! Writes a new project into a folder and builds it: `cargo run -p karman-kit --example new_and_build -- DIR c`.

use karman_kit::{Project, Tools, build, create};
use karman_types::{Language, World, format_bytes};
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [dir, lang] = &arguments[..] else {
        return Err("usage: new_and_build DIR rust|c|python|js".into());
    };
    let lang = match lang.as_str() {
        "rust" => Language::Rust,
        "c" => Language::C,
        "python" => Language::Python,
        "js" => Language::Js,
        other => return Err(format!("`{other}` is not a language: rust, c, python or js").into()),
    };
    let dir = Path::new(dir);
    let extra = std::env::var_os("KARMAN_TOOLS").map(PathBuf::from);
    create(dir, "hello", lang, World::Task)?;
    let built = build(
        &Project::open(dir)?,
        &Tools::find(extra.as_deref()),
        &mut |step| eprintln!("{step}"),
    )?;
    println!("{}   {}", built.path.display(), format_bytes(built.bytes));
    Ok(())
}
