use crate::package::{Outline, check_component};
use crate::section::{MANIFEST, PUBLISHER, SIGNATURE, append, without};
use crate::{PackageError, ReadLimits};
use karman_types::Manifest;

/// Puts a manifest into a component. An older manifest is replaced, a signature is dropped (it no longer holds), and
/// [`Manifest::build`] stays behind in the source tree.
///
/// # Errors
/// Those of [`Package::read`](crate::Package::read), but for its limits: the manifest, the component or both together
/// are not what a node runs.
pub fn embed(component: &[u8], manifest: &Manifest) -> Result<Vec<u8>, PackageError> {
    let text = Manifest {
        build: None,
        ..manifest.clone()
    }
    .to_toml();
    Manifest::from_toml(&text)?;
    check_component(component)?;
    let limits = ReadLimits {
        bytes: usize::MAX,
        ..ReadLimits::default()
    };
    Outline::read(component, &limits)?.world(Some(manifest))?;

    let mut file = without(component, &[MANIFEST, PUBLISHER, SIGNATURE])?;
    append(&mut file, MANIFEST, text.as_bytes());
    Ok(file)
}
