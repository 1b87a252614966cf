//! Any bytes as an attempt that came by bundle, or as what came of one: a typed error, or something within its bounds.
#![cfg_attr(fuzzing, no_main)]

use karman_tasks::{AwayCall, AwayReply, Needs};

fn check(bytes: &[u8]) {
    let _ = AwayCall::read(bytes);
    if let Ok(AwayReply::Needs(asked)) = AwayReply::read(bytes) {
        let mut needs = Needs::default();
        let taken = needs.add(asked).is_ok();
        assert!(taken || needs == Needs::default());
        assert!(needs.places().len() <= Needs::MOST);
    }
}

karman_fuzz::target!(check);
