use super::Step;
use crate::run::{has, program, quiet};
use anyhow::{Result, bail};
use std::sync::{Mutex, PoisonError};

/// Programs that tests and guests run, with the Debian packages that bring them.
const PROGRAMS: [(&str, &str); 10] = [
    ("chromedriver", "chromium-driver"),
    ("chromium", "chromium"),
    ("docker-registry", "docker-registry"),
    ("faketime", "faketime"),
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("node", "nodejs"),
    ("npm", "npm"),
    ("pebble", "pebble"),
    ("python3", "python3"),
];

/// Vulkan on the processor, for the tests of GPUs, and where its driver says that it is there.
const VULKAN: &str = "mesa-vulkan-drivers";
const DRIVERS: &str = "/usr/share/vulkan/icd.d";

pub(crate) const DEBIAN: Step = Step {
    name: "programs",
    recipe: "chromium chromium-driver docker-registry faketime iproute2 libvulkan1 mesa-vulkan-drivers nftables nodejs npm pebble python3",
    missing: || !missing(&PROGRAMS).is_empty() || !has_vulkan(),
    install: || {
        let mut packages = missing(&PROGRAMS);
        if !has_vulkan() {
            packages.extend([VULKAN, "libvulkan1"]);
        }
        install(&packages)
    },
};

/// Whether there is any Vulkan driver. Elsewhere than on Debian its folder may be another: then the tests say that they skip.
fn has_vulkan() -> bool {
    let drivers = std::path::Path::new(DRIVERS).read_dir();
    !has("apt-get") || drivers.is_ok_and(|mut drivers| drivers.next().is_some())
}

/// What studies compare with, and load servers with.
const COMPARED: [(&str, &str); 2] = [("nats-server", "nats-server"), ("wrk", "wrk")];

pub(crate) const PEERS: Step = Step {
    name: "peers",
    recipe: "nats-server wrk",
    missing: || !missing(&COMPARED).is_empty(),
    install: || install(&missing(&COMPARED)),
};

fn missing(programs: &[(&'static str, &'static str)]) -> Vec<&'static str> {
    programs
        .iter()
        .filter(|(name, _)| !has(name))
        .map(|(_, package)| *package)
        .collect()
}

/// One installation at a time: apt has one lock, and does not wait for it.
static APT: Mutex<()> = Mutex::new(());

/// Installs Debian packages where that can be done, else says how.
pub(super) fn install(packages: &[&str]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !has("apt-get") {
        bail!("install these with your system's packages: {list}");
    }
    if !root()? {
        bail!("run `sudo apt-get install {list}`");
    }
    let _alone = APT.lock().unwrap_or_else(PoisonError::into_inner);
    quiet(program("apt-get").args(["update", "-qq"]))?;
    let mut apt = program("apt-get");
    apt.args(["install", "-qq", "--no-install-recommends"])
        .args(packages);
    quiet(apt.env("DEBIAN_FRONTEND", "noninteractive"))
}

/// Whether we may install packages.
pub(super) fn root() -> Result<bool> {
    let id = program("id").arg("-u").output()?;
    Ok(id.stdout.trim_ascii() == b"0")
}
