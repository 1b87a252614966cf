use crate::app::App;
use crate::commands::build::list;
use crate::error::Worded;
use crate::held::Held;
use crate::output::table;
use crate::source::Source;
use clap::Args;
use karman_package::{Package, ReadLimits};
use karman_types::{DataField, Grant, GrantSet, Limits, Manifest, TaskError, format_bytes, format_duration};
use serde_json::{Value, json};

/// `karman inspect`
#[derive(Args, Debug)]
pub(crate) struct Inspect {
    /// A .wasm file, a project's folder, or a reference in a registry
    plugin: String,
    /// Ids and keys in full length
    #[arg(long)]
    long: bool,
}

impl Inspect {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        let source = Source::find(app, &self.plugin)?;
        let package = Package::read(&source.bytes, &ReadLimits::default()).map_err(Worded::worded)?;
        let config = app.config()?;
        let manifest = package
            .manifest
            .clone()
            .unwrap_or_else(|| config.foreign(&source.name, package.world));
        let identity = package.identity().to_string();
        let held = Held::if_any(app)
            .inspect_err(|error| {
                app.output
                    .note(format!("note: what the operator allowed is not known: {error}"))
            })
            .ok()
            .flatten();
        let (allowed, installed) = match &held {
            Some(held) => (
                held.allowed(&identity)?,
                held.installed()?
                    .into_iter()
                    .find(|plugin| plugin.identity == identity),
            ),
            None => Default::default(),
        };
        let foreign: GrantSet = config
            .foreign
            .get(&source.name)
            .into_iter()
            .flat_map(|f| f.grants.iter().cloned())
            .collect();
        let shown = Shown {
            package: &package,
            manifest: &manifest,
            default: config.default_grants(),
            allowed: allowed.iter().chain(foreign.iter()).cloned().collect(),
            // The name alone will do once the node has the plugin.
            called: installed.map_or_else(|| self.plugin.clone(), |plugin| plugin.name),
            long: self.long,
        };
        app.output.result(|| shown.text(), || shown.object())
    }
}

struct Shown<'a> {
    package: &'a Package,
    manifest: &'a Manifest,
    default: GrantSet,
    allowed: GrantSet,
    called: String,
    long: bool,
}

impl Shown<'_> {
    fn text(&self) -> String {
        let (package, manifest) = (self.package, self.manifest);
        let signer = match &package.publisher {
            Some(key) if self.long => format!("signed by {key}"),
            Some(key) => format!("signed by {}", key.short()),
            None => "not signed".into(),
        };
        let head = format!(
            "{} {}   {signer}   world {}",
            manifest.name, manifest.version, package.world
        );
        let mut parts = vec![head];
        if !manifest.description.is_empty() {
            parts.push(manifest.description.clone());
        }
        let asks = manifest.asks.iter().map(|grant| self.ask("asks   ", grant));
        let optional = manifest.optional.iter().map(|grant| self.ask("may ask", grant));
        let asks: Vec<Vec<String>> = asks.chain(optional).collect();
        parts.push(if asks.is_empty() {
            "asks      nothing".into()
        } else {
            table(&asks)
        });
        parts.push(format!("limits    {}", limits(&manifest.limits)));
        if manifest.warm {
            parts.push("warm      keeps an instance between calls".into());
        }
        if let Some(task) = &manifest.task {
            parts.push(format!(
                "task      {}   {} -> {}",
                task.capability,
                fields(&task.inputs),
                fields(&task.outputs)
            ));
        }
        let id = if self.long {
            package.id.to_string()
        } else {
            package.id.short()
        };
        parts.push(format!(
            "id        {id}   {}",
            format_bytes(package.bytes_len as u64)
        ));
        parts.push(format!(
            "imports   {}",
            imports(&package.imports).join("\n          ")
        ));
        parts.join("\n")
    }

    /// `asks      http:tiles.example   granted   no   karman node grant classify http:tiles.example`.
    fn ask(&self, how: &str, grant: &Grant) -> Vec<String> {
        let (held, why) = self.granted(grant);
        vec![
            how.into(),
            grant.to_string(),
            "granted".into(),
            format!("{held}{why}"),
        ]
    }

    fn granted(&self, grant: &Grant) -> (&'static str, String) {
        if self.allowed.allows(grant) {
            return ("yes", String::new());
        }
        if self.default.allows(grant) {
            return ("yes", " (default of this node)".into());
        }
        let asked = GrantSet::new([grant.clone()]);
        let everything: GrantSet = self.default.iter().chain(self.allowed.iter()).cloned().collect();
        let part = everything.intersection(&asked);
        let command = format!("   karman node grant {} {grant}", self.called);
        match part.is_empty() {
            true => ("no", command),
            false => (
                "partly",
                format!(" ({})   {}", list(part.iter()), command.trim_start()),
            ),
        }
    }

    fn object(&self) -> Value {
        let (package, manifest) = (self.package, self.manifest);
        let held = |grant| json!({ "grant": grant, "granted": self.granted(grant).0 });
        let asks: Vec<Value> = manifest.asks.iter().map(held).collect();
        let optional: Vec<Value> = manifest.optional.iter().map(held).collect();
        json!({
            "name": manifest.name, "version": manifest.version, "description": manifest.description,
            "signed_by": package.publisher, "identity": package.identity(), "world": package.world.as_str(),
            "asks": asks, "optional": optional, "limits": manifest.limits, "warm": manifest.warm, "task": manifest.task,
            "id": package.id, "bytes": package.bytes_len, "imports": package.imports, "exports": package.exports,
        })
    }
}

/// `wasi:io 0.2.6   poll error streams`: the interfaces of a package in one line.
fn imports(names: &[String]) -> Vec<String> {
    let mut packages: Vec<(String, Vec<&str>)> = Vec::new();
    for name in names {
        let (interface, version) = name.split_once('@').unwrap_or((name, ""));
        let (package, interface) = interface.split_once('/').unwrap_or((interface, ""));
        let package = format!("{package} {version}");
        match packages.iter_mut().find(|(known, _)| *known == package) {
            Some((_, interfaces)) => interfaces.push(interface),
            None => packages.push((package, vec![interface])),
        }
    }
    match packages.is_empty() {
        true => vec!["nothing".into()],
        false => packages
            .into_iter()
            .map(|(package, names)| format!("{package}   {}", names.join(" ")))
            .collect(),
    }
}

fn limits(limits: &Limits) -> String {
    let Limits {
        memory,
        time,
        concurrency,
        input,
        output,
        fuel,
        ..
    } = limits;
    let fuel = fuel
        .map(|fuel| format!(", {fuel} units of fuel"))
        .unwrap_or_default();
    format!(
        "{memory} memory, {}, {concurrency} at once, {input} in, {output} out{fuel}",
        format_duration(*time)
    )
}

/// `image (image/png, 28x28)`.
fn fields(fields: &[DataField]) -> String {
    let one = |field: &DataField| {
        let shape: Vec<String> = field
            .shape
            .iter()
            .map(|size| {
                if *size == 0 {
                    "any".into()
                } else {
                    size.to_string()
                }
            })
            .collect();
        let shape = if shape.is_empty() {
            String::new()
        } else {
            format!(" [{}]", shape.join(", "))
        };
        let unit = if field.unit.is_empty() {
            String::new()
        } else {
            format!(", {}", field.unit)
        };
        let optional = if field.optional { "?" } else { "" };
        format!("{}{optional} ({}{shape}{unit})", field.name, field.r#type)
    };
    match fields.is_empty() {
        true => "nothing".into(),
        false => fields.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_grouped_by_package() {
        let names = [
            "wasi:io/poll@0.2.6",
            "karman:task/types@0.1.0",
            "wasi:io/error@0.2.6",
        ]
        .map(str::to_owned);
        assert_eq!(
            imports(&names),
            ["wasi:io 0.2.6   poll error", "karman:task 0.1.0   types"]
        );
        assert_eq!(imports(&[]), ["nothing"]);
    }

    #[test]
    fn each_ask_says_whether_it_is_granted() {
        let run = r#"(component (instance $run) (export "wasi:cli/run@0.2.0" (instance $run)))"#;
        let bytes = wat::parse_str(run).unwrap();
        let package = Package::read(&bytes, &ReadLimits::default()).unwrap();
        let asks = ["nn:digits-*", "http:tiles.example", "kv:road"].map(|text| text.parse().unwrap());
        let manifest = Manifest {
            asks: asks.to_vec(),
            ..Manifest::foreign("classify", package.world)
        };
        let shown = Shown {
            package: &package,
            manifest: &manifest,
            default: GrantSet::new(["nn:*".parse().unwrap()]),
            allowed: GrantSet::new(["kv:road".parse().unwrap()]),
            called: "classify".into(),
            long: false,
        };
        let text = shown.text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("classify 0.0.0   not signed   world wasi:cli/command"),
            "{text}"
        );
        assert_eq!(
            lines[1],
            "asks      nn:digits-*          granted   yes (default of this node)"
        );
        assert!(
            lines[2].ends_with("granted   no   karman node grant classify http:tiles.example"),
            "{text}"
        );
        assert_eq!(lines[3], "asks      kv:road              granted   yes");
    }
}
