//! Any text as an invitation and as a right.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::membership::{Invitation, Right};

fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(invitation) = text.parse::<Invitation>() {
        assert_eq!(invitation.to_string().parse(), Ok(invitation.clone()));
    }
    if let Ok(right) = text.parse::<Right>() {
        assert_eq!(right.to_string(), text);
        assert!(right.covers(&right), "{right} does not cover itself");
    }
}

karman_fuzz::target!(check);
