use crate::section::{Content, PUBLISHER, SIGNATURE, Sections, append, without};
use crate::{Malformed, PublicKey, SecretKey};
use karman_types::ErrorKind;

/// A signature that does not hold, or none that can be judged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// The file was changed after it was signed, or by someone without the key.
    #[error("the signature of {} does not fit the file: it was changed after it was signed; fetch it again", key.short())]
    Broken {
        /// The publisher that seems to have signed it.
        key: PublicKey,
    },
    /// The file names a publisher and has no signature.
    #[error("the file says that {} signed it, but the signature was removed; fetch it again", key.short())]
    Removed {
        /// The publisher that the file names.
        key: PublicKey,
    },
    /// The file has a signature and names no publisher, so that it cannot be verified offline.
    #[error("the file has a signature but no publisher's key; sign it with `karman sign`")]
    UnknownPublisher,
    /// The signature is not the first section.
    #[error(
        "the file has a signature at byte {offset}, where it covers nothing; sign it again with `karman sign`"
    )]
    Misplaced {
        /// Where, counted from the start of the file.
        offset: usize,
    },
    /// The signature or the key has another shape than [`sign`] gives it.
    #[error("{what} is not one Ed25519 key or signature; sign the file again with `karman sign`")]
    Layout {
        /// The section.
        what: &'static str,
    },
    /// The file's structure does not read.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl SignatureError {
    /// Denied for a signature that does not hold, invalid for a file that does not read.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(_) => ErrorKind::Invalid,
            _ => ErrorKind::Denied,
        }
    }
}

/// Signs a component: an older signature is replaced, the public key travels inside. Everything else in the file is
/// covered, the manifest and the key included. The same bytes and key give the same file. Only the lengths of sections
/// may come out shorter than they were written, where a tool had padded them.
///
/// # Errors
/// [`SignatureError::Malformed`] when the component's structure does not read.
pub fn sign(component: &[u8], key: &SecretKey) -> Result<Vec<u8>, SignatureError> {
    let mut file = without(component, &[PUBLISHER, SIGNATURE])?;
    append(&mut file, PUBLISHER, key.public().as_bytes());
    let unreadable = |error: wasmsign2::WSError| Malformed::at(0, &error.to_string());
    let module = wasmsign2::Module::deserialize(&mut &file[..]).map_err(unreadable)?;
    let signed = key.signer().sign(module, None).map_err(unreadable)?;
    file.clear();
    signed.serialize(&mut file).map_err(unreadable)?;
    Ok(file)
}

/// The publisher that signed the file; `None` when it is not signed. Needs no network and no list of keys: whether the publisher is trusted is
/// the caller's question.
///
/// # Errors
/// The signature does not fit the file, was removed, or is of another make. An unsigned file is no error.
pub fn verify(bytes: &[u8]) -> Result<Option<PublicKey>, SignatureError> {
    let mut signature = None;
    let mut publisher = None;
    for (index, section) in Sections::new(bytes).enumerate() {
        let section = section?;
        match section.content {
            Content::Custom {
                name: SIGNATURE,
                data,
            } if index == 0 => signature = Some(data),
            Content::Custom { name: SIGNATURE, .. } => {
                return Err(SignatureError::Misplaced {
                    offset: section.range.start,
                });
            }
            Content::Custom {
                name: PUBLISHER,
                data,
            } => {
                let key =
                    <[u8; 32]>::try_from(data).map_err(|_| SignatureError::Layout { what: PUBLISHER })?;
                if publisher.replace(PublicKey::from_bytes(key)).is_some() {
                    return Err(SignatureError::Layout { what: PUBLISHER });
                }
            }
            _ => {}
        }
    }
    let key = match (signature, publisher) {
        (None, None) => return Ok(None),
        (None, Some(key)) => return Err(SignatureError::Removed { key }),
        (Some(_), None) => return Err(SignatureError::UnknownPublisher),
        (Some(signature), Some(key)) => {
            check_layout(signature)?;
            key
        }
    };
    match key.signer().verify(&mut &bytes[..], None) {
        Ok(()) => Ok(Some(key)),
        Err(_) => Err(SignatureError::Broken { key }),
    }
}

/// One hash, one signature, no key id: the only shape that [`sign`] makes. The lengths in any other one would be trusted
/// by `wasmsign2`, which allocates what they say (up to 4 GiB) before it looks at what is there.
fn check_layout(signature: &[u8]) -> Result<(), SignatureError> {
    // Version, content type, SHA-256, one set of 102 bytes with one hash.
    const BEFORE_HASH: [u8; 6] = [1, 1, 1, 1, 102, 1];
    // One signature of 67 bytes: no key id, Ed25519, 64 bytes.
    const BEFORE_SIGNATURE: [u8; 5] = [1, 67, 0, 1, 64];
    let fits = signature.len() == 6 + 32 + 5 + 64
        && signature[..6] == BEFORE_HASH
        && signature[38..43] == BEFORE_SIGNATURE;
    fits.then_some(())
        .ok_or(SignatureError::Layout { what: SIGNATURE })
}
