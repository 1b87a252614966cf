//! Writes down when the program is built: no clock that shows an earlier time is believed.

use std::env;
use std::time::{SystemTime, UNIX_EPOCH};

fn main() {
    println!("cargo:rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo:rerun-if-changed=src");
    // Reproducible builds say which time to take (reproducible-builds.org).
    let built = env::var("SOURCE_DATE_EPOCH").unwrap_or_else(|_| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.as_secs().to_string()
    });
    println!("cargo:rustc-env=KARMAN_BUILT={built}");
}
