//! The key by which a new account is bound to one that the operator has with the server (RFC 8555, section 7.3.4).

use crate::config::ExternalAccount;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::ExternalAccountKey;
use karman_types::TaskError;

/// Reads the key.
///
/// # Errors
/// `invalid` with the file when it does not read, or holds no key.
pub(super) fn read(account: &ExternalAccount) -> Result<ExternalAccountKey, TaskError> {
    let wrong = |why: &dyn std::fmt::Display| {
        TaskError::invalid(format!("{}: {why}", account.key.display()))
            .with_field("gateway.acme.external-account.key")
    };
    let text = std::fs::read_to_string(&account.key).map_err(|error| wrong(&error))?;
    // What is wrong with it is not said: that would be a part of the key.
    let key = key_of(&text).ok_or_else(|| wrong(&"it is no key in base64url, as the server shows it"))?;
    Ok(ExternalAccountKey::new(account.key_id.clone(), &key))
}

/// The key of a text. Some servers show it in the alphabet of plain base64, or padded.
fn key_of(text: &str) -> Option<Vec<u8>> {
    let text = text.trim().trim_end_matches('=');
    let text = text.replace('+', "-").replace('/', "_");
    let key = URL_SAFE_NO_PAD.decode(text).ok()?;
    (!key.is_empty()).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_in_either_alphabet_and_a_wrong_one_is_not_shown() {
        let key = Some(vec![0xfb, 0xff, 0xfe, 0x01]);
        for text in ["-__-AQ", "+//+AQ==\n", "-__-AQ=="] {
            assert_eq!(key_of(text), key, "{text}");
        }
        let folder = tempfile::tempdir().unwrap();
        let account = ExternalAccount {
            key_id: "kid-1".into(),
            key: folder.path().join("binding.key"),
        };
        let error = |text: &str| {
            std::fs::write(&account.key, text).unwrap();
            read(&account).err().unwrap()
        };
        for text in ["", "\n", "se cret", "secre"] {
            let error = error(text);
            assert_eq!(error.field.as_deref(), Some("gateway.acme.external-account.key"));
            assert!(error.message.contains("binding.key"), "{error}");
            assert!(text.len() < 2 || !error.message.contains(text), "{error}");
        }
        std::fs::remove_file(&account.key).unwrap();
        assert!(read(&account).is_err());
    }
}
