//! That a mailbox is a member's, for those who hear of it from somebody else.

use super::MembershipError;
use super::statement::Statement;

/// States with the key of this seed that the mailbox of this address is its holder's, in what it is `about`.
pub(crate) fn sign_mailbox(seed: &[u8; 32], address: &[u8; 32], about: &[u8]) -> [u8; 64] {
    Statement::Mailbox.sign(seed, &body(address, about))
}

/// That the holder of this key has stated so.
///
/// # Errors
/// [`MembershipError::Malformed`] when the signature is another's, or of something else.
pub(crate) fn verify_mailbox(
    key: &[u8; 32],
    address: &[u8; 32],
    about: &[u8],
    signature: &[u8; 64],
) -> Result<(), MembershipError> {
    Statement::Mailbox.verify(key, &body(address, about), signature)
}

/// An address is always as long.
fn body(address: &[u8; 32], about: &[u8]) -> Vec<u8> {
    [&address[..], about].concat()
}

#[cfg(test)]
mod tests {
    use super::super::statement::public_key;
    use super::*;

    #[test]
    fn a_mailbox_is_whose_key_has_signed_for_it_and_in_nothing_else() {
        let (seed, address) = ([7; 32], [9; 32]);
        let key = public_key(&seed);
        let signature = sign_mailbox(&seed, &address, b"round");
        let holds = |key: &[u8; 32], address: &[u8; 32], about: &[u8], signature: &[u8; 64]| {
            verify_mailbox(key, address, about, signature).is_ok()
        };
        assert!(holds(&key, &address, b"round", &signature));
        assert!(!holds(&public_key(&[8; 32]), &address, b"round", &signature));
        assert!(!holds(&key, &[8; 32], b"round", &signature));
        assert!(!holds(&key, &address, b"another", &signature));
        let mut changed = signature;
        changed[5] ^= 1;
        assert!(!holds(&key, &address, b"round", &changed));
        // A key signs other things too.
        let ticket = Statement::Ticket.sign(&seed, &body(&address, b"round"));
        assert!(!holds(&key, &address, b"round", &ticket));
    }
}
