//! Any text as an invitation and as a right.
#![no_main]

use karman_mesh::membership::{Invitation, Right};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(invitation) = text.parse::<Invitation>() {
        assert_eq!(invitation.to_string().parse(), Ok(invitation.clone()));
    }
    if let Ok(right) = text.parse::<Right>() {
        assert_eq!(right.to_string(), text);
        assert!(right.covers(&right), "{right} does not cover itself");
    }
});
