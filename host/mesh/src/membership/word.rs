//! Bytes as one word for people: a prefix, then base32 (RFC 4648, no padding) of the bytes and five bytes of their BLAKE3
//! digest. Case does not matter and neither does white space, so that it can be a small QR code or wrapped on paper.

use super::MembershipError;
use data_encoding::BASE32_NOPAD;

/// Fits a QR code, which holds 4,296 such characters (ISO/IEC 18004).
pub(super) const MAX_CHARACTERS: usize = 4096;

const CHECKSUM: usize = 5;

pub(super) fn write(prefix: &'static str, bytes: &[u8]) -> String {
    let word = BASE32_NOPAD.encode(&[bytes, &checksum(prefix, bytes)].concat());
    format!("{prefix}{}", word.to_ascii_lowercase())
}

/// `field` names the text in errors.
pub(super) fn read(
    field: &'static str,
    prefix: &'static str,
    text: &str,
) -> Result<Vec<u8>, MembershipError> {
    // Twice the length leaves room for the white space.
    if text.len() > 2 * MAX_CHARACTERS {
        return Err(too_long(field));
    }
    let word: String = text.split_ascii_whitespace().collect();
    if word.len() > MAX_CHARACTERS {
        return Err(too_long(field));
    }
    let word = word.to_ascii_uppercase();
    let word = word.strip_prefix(&*prefix.to_ascii_uppercase()).ok_or_else(|| {
        MembershipError::malformed(field, format!("begins with `{prefix}`; copy all of it"))
    })?;
    let typo = MembershipError::Typo { prefix };
    let mut bytes = BASE32_NOPAD.decode(word.as_bytes()).map_err(|_| typo.clone())?;
    let end = bytes.len().checked_sub(CHECKSUM).ok_or_else(|| typo.clone())?;
    let sum = bytes.split_off(end);
    if sum != checksum(prefix, &bytes) {
        return Err(typo);
    }
    Ok(bytes)
}

pub(super) const fn too_long(field: &'static str) -> MembershipError {
    MembershipError::TooLong {
        field,
        limit: MAX_CHARACTERS,
    }
}

fn checksum(prefix: &str, bytes: &[u8]) -> [u8; CHECKSUM] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(prefix.as_bytes()).update(bytes);
    let mut sum = [0; CHECKSUM];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..CHECKSUM]);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_read_what_they_write(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let word = write("kmn1", &bytes);
            prop_assert_eq!(read("word", "kmn1", &word).unwrap(), bytes.clone());
            prop_assert_eq!(read("word", "kmn1", &format!(" {}\n", word.to_uppercase())).unwrap(), bytes);
            prop_assert!(read("word", "kmk1", &word).is_err());
        }

        #[test]
        fn no_text_panics(text in "(kmn1)?.{0,60}") {
            let _ = read("word", "kmn1", &text);
        }
    }
}
