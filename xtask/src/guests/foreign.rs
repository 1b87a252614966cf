/// The section in which a component carries its manifest.
const MANIFEST: &[u8] = b"karman:manifest";

/// A component as its own toolchain made it: without the manifest that `karman build` puts in. Nothing when the bytes
/// are no component.
pub(crate) fn without_manifest(component: &[u8]) -> Option<Vec<u8>> {
    let (header, mut rest) = component.split_at_checked(8)?;
    let mut bare = header.to_vec();
    while let [id, after @ ..] = rest {
        let (length, body) = number(after)?;
        let (body, next) = body.split_at_checked(length)?;
        let whole = &rest[..rest.len() - next.len()];
        let is_manifest =
            *id == 0 && number(body).is_some_and(|(name, text)| text.get(..name) == Some(MANIFEST));
        if !is_manifest {
            bare.extend_from_slice(whole);
        }
        rest = next;
    }
    Some(bare)
}

/// An unsigned LEB128 number of at most 32 bits, and what follows.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (place, byte) in bytes.iter().enumerate().take(5) {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some((usize::try_from(value).ok()?, &bytes[place + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_manifest_goes() {
        let section = |name: &[u8], content: &[u8]| {
            let body = [&[name.len() as u8], name, content].concat();
            [&[0, body.len() as u8], body.as_slice()].concat()
        };
        let header = b"\0asm\x0d\0\x01\0".to_vec();
        let (other, code) = (section(b"name", b"x"), vec![7, 2, 1, 2]);
        let with = [
            header.clone(),
            other.clone(),
            section(MANIFEST, b"name = 1"),
            code.clone(),
        ]
        .concat();
        assert_eq!(without_manifest(&with), Some([header, other, code].concat()));
        assert_eq!(without_manifest(&with[..with.len() - 1]), None);
    }
}
