use crate::section::{Content, MANIFEST, Sections};
use crate::world::{is_lifecycle, is_offered, worlds};
use crate::{Identity, PackageError, PublicKey, verify};
use karman_types::{Digest, Manifest, World};
use wasmparser::ComponentExternalKind;

/// How much of a file is read before it is refused.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ReadLimits {
    /// The most bytes that a file may have. 64 MiB by default: a Python plugin has 18.
    pub bytes: usize,
    /// The most imports and exports that a component may have, together. 1024 by default.
    pub names: usize,
}

impl Default for ReadLimits {
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            names: 1024,
        }
    }
}

/// A plugin's file, read and checked: manifest and signature hold, and nodes run its world. Its code is not looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Package {
    /// The BLAKE3 of the file.
    pub id: Digest,
    /// How many bytes the file has.
    pub bytes_len: usize,
    /// What the plugin says of itself; a foreign component says nothing.
    pub manifest: Option<Manifest>,
    /// The publisher that signed it. The signature covers every byte but its own and was verified.
    pub publisher: Option<PublicKey>,
    /// The world it is run as: the manifest's where there is one, else what its exports say.
    pub world: World,
    /// The names of what it imports, in the order of the file.
    pub imports: Vec<String>,
    /// The names of what it exports, in the order of the file.
    pub exports: Vec<String>,
    /// Whether it exports `karman:task/lifecycle`.
    pub lifecycle: bool,
}

impl Package {
    /// Reads a plugin's file. Time and memory are linear in the file (it is hashed twice when it is signed); nested
    /// modules are stepped over.
    ///
    /// # Errors
    /// One case of [`PackageError`] for each way in which bytes can fail to be a plugin. None of them panics.
    pub fn read(bytes: &[u8], limits: &ReadLimits) -> Result<Self, PackageError> {
        if bytes.len() > limits.bytes {
            return Err(PackageError::TooLarge {
                bytes: bytes.len(),
                most: limits.bytes,
            });
        }
        check_component(bytes)?;
        let outline = Outline::read(bytes, limits)?;
        let publisher = verify(bytes)?;
        let manifest = outline.manifest.map(read_manifest).transpose()?;
        let world = outline.world(manifest.as_ref())?;
        let not_offered: Vec<_> = outline
            .imports
            .iter()
            .filter(|name| !is_offered(name))
            .map(|name| (*name).to_owned())
            .collect();
        if !not_offered.is_empty() {
            return Err(PackageError::NotOffered { imports: not_offered });
        }
        Ok(Self {
            id: Digest::of(bytes),
            bytes_len: bytes.len(),
            manifest,
            publisher,
            world,
            lifecycle: outline.instances().any(is_lifecycle),
            imports: outline.imports.iter().map(|name| (*name).to_owned()).collect(),
            exports: outline.names(),
        })
    }

    /// What its grants, state and upgrades belong to: publisher and name when it is signed and has a manifest, else the
    /// file itself.
    pub fn identity(&self) -> Identity {
        match (self.publisher, &self.manifest) {
            (Some(key), Some(manifest)) => Identity::Publisher {
                key,
                name: manifest.name.clone(),
            },
            _ => Identity::Digest(self.id),
        }
    }
}

/// Refuses what does not start as a component does.
pub(crate) fn check_component(bytes: &[u8]) -> Result<(), PackageError> {
    if !bytes.starts_with(b"\0asm") {
        return Err(PackageError::NotWasm {
            start: bytes[..bytes.len().min(4)].to_vec(),
        });
    }
    match bytes.get(4..8) {
        Some([1, 0, 0, 0]) => Err(PackageError::CoreModule),
        _ => Ok(()),
    }
}

/// What the top level of a component says.
pub(crate) struct Outline<'a> {
    manifest: Option<&'a [u8]>,
    imports: Vec<&'a str>,
    exports: Vec<(&'a str, ComponentExternalKind)>,
}

impl<'a> Outline<'a> {
    pub(crate) fn read(bytes: &'a [u8], limits: &ReadLimits) -> Result<Self, PackageError> {
        let mut outline = Self {
            manifest: None,
            imports: Vec::new(),
            exports: Vec::new(),
        };
        for section in Sections::new(bytes) {
            match section?.content {
                Content::Custom { name: MANIFEST, .. } if outline.manifest.is_some() => {
                    return Err(PackageError::SeveralManifests);
                }
                Content::Custom { name: MANIFEST, data } => outline.manifest = Some(data),
                Content::Imports(imports) => {
                    outline.make_room(imports.count(), limits)?;
                    for import in imports {
                        outline
                            .imports
                            .push(import.map_err(crate::Malformed::from)?.name.name);
                    }
                }
                Content::Exports(exports) => {
                    outline.make_room(exports.count(), limits)?;
                    for export in exports {
                        let export = export.map_err(crate::Malformed::from)?;
                        outline.exports.push((export.name.name, export.kind));
                    }
                }
                _ => {}
            }
        }
        Ok(outline)
    }

    fn make_room(&self, more: u32, limits: &ReadLimits) -> Result<(), PackageError> {
        if self.imports.len() + self.exports.len() + more as usize > limits.names {
            return Err(PackageError::TooManyNames { most: limits.names });
        }
        Ok(())
    }

    /// The names of all exports.
    fn names(&self) -> Vec<String> {
        self.exports.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    /// The exported interfaces.
    fn instances(&self) -> impl Iterator<Item = &'a str> + Clone + '_ {
        self.exports
            .iter()
            .filter(|(_, kind)| *kind == ComponentExternalKind::Instance)
            .map(|(name, _)| *name)
    }

    /// The world to run it as. Of several, the manifest chooses.
    pub(crate) fn world(&self, manifest: Option<&Manifest>) -> Result<World, PackageError> {
        let found = worlds(self.instances());
        match (manifest, found.first()) {
            (_, None) => Err(PackageError::NoWorld {
                exports: self.names(),
            }),
            (Some(manifest), _) if found.contains(&manifest.world) => Ok(manifest.world),
            (Some(manifest), _) => Err(PackageError::WorldDiffers {
                manifest: manifest.world,
                found,
            }),
            (None, Some(first)) => Ok(*first),
        }
    }
}

fn read_manifest(data: &[u8]) -> Result<Manifest, PackageError> {
    // Whatever is longer than a manifest may be is refused before it is looked at.
    if data.len() > Manifest::MAX_BYTES {
        return Err(karman_types::ManifestError::TooLong {
            bytes: data.len(),
            most: Manifest::MAX_BYTES,
        }
        .into());
    }
    let text = std::str::from_utf8(data).map_err(|error| PackageError::ManifestEncoding {
        offset: error.valid_up_to(),
    })?;
    Ok(Manifest::from_toml(text)?)
}
