//! What devices a machine has, and why there is none where there could be.

use crate::child::{ChildError, ask};
use crate::device::{Api, Cpu, Device, DeviceInfo, adapters, cuda_devices, describe};
use serde::{Deserialize, Serialize};
use std::process::Command;
use std::time::Duration;

/// The devices that were found, and those that were not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Found {
    /// Devices, the one to prefer first; the processor is last and always there.
    pub devices: Vec<DeviceInfo>,
    /// What is not there, and why.
    pub absent: Vec<Absent>,
}

/// A kind of device that is not there, and why.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Absent {
    /// What: `vulkan`, `cuda`.
    pub what: String,
    /// Why it is not there, and what would bring it.
    pub why: String,
}

/// Time for drivers to say what they have.
pub const MOST_PROBE: Duration = Duration::from_secs(30);

/// Asks every driver in this process what it has. A bad driver may crash or hang here: call it in a child, through [`find`].
pub fn probe() -> Found {
    let mut devices = describe(&adapters());
    let mut absent = Vec::new();
    if cfg!(target_os = "linux") && !devices.iter().any(|device| device.api == Api::Vulkan) {
        let why = match library("libvulkan.so.1") {
            Err(why) => format!("no Vulkan loader ({why}); Debian and Ubuntu: apt-get install libvulkan1"),
            Ok(()) => "the Vulkan loader is there, but no driver answers it; Debian and Ubuntu: apt-get install \
                       mesa-vulkan-drivers, or your maker's driver; VK_ICD_FILENAMES, if set, has to name a good one"
                .into(),
        };
        absent.push(Absent {
            what: "vulkan".into(),
            why,
        });
    }
    match cuda_devices() {
        Ok(found) => devices.extend(found),
        Err(why) => absent.push(Absent {
            what: "cuda".into(),
            why,
        }),
    }
    devices.sort_by_key(|device| (device.class, after(device.api)));
    devices.push(Cpu::new(0).info().clone());
    Found { devices, absent }
}

/// Within a class those come first that do more: OpenGL has less room than Vulkan and its like, and CUDA runs no shaders of plugins.
const fn after(api: Api) -> u8 {
    match api {
        Api::Vulkan | Api::Metal | Api::Dx12 => 0,
        Api::Gl => 1,
        Api::Cuda => 2,
        Api::Cpu => 3,
    }
}

/// Whether a library of the system can be loaded.
#[expect(unsafe_code, reason = "loading a library runs its code")]
fn library(name: &str) -> Result<(), String> {
    // SAFETY: these are drivers' entrances, made to be loaded so; `probe` is called in a child because they may be broken.
    unsafe { libloading::Library::new(name) }
        .map(drop)
        .map_err(|error| error.to_string())
}

/// Runs a child that prints [`probe`] as JSON, and gives what it found. When it crashes, hangs or says nothing, there is the processor,
/// and that is said.
pub fn find(child: Command, within: Duration) -> Found {
    let read = |text: String| {
        serde_json::from_str(text.trim())
            .map_err(|error| format!("the probe's answer does not read: {error}"))
    };
    let answered = ask(child, &[], within).map_err(blame).and_then(read);
    answered.unwrap_or_else(|why| Found {
        devices: vec![Cpu::new(0).info().clone()],
        absent: vec![Absent {
            what: "gpu".into(),
            why,
        }],
    })
}

/// What is to be done about a probe that gives no answer.
fn blame(error: ChildError) -> String {
    match error {
        ChildError::Start(_) => error.to_string(),
        ChildError::Timeout(within) => {
            let within = karman_types::format_duration(within);
            format!("a GPU driver did not answer within {within}; mend or remove it")
        }
        ChildError::Failed { status, said } => {
            format!("a GPU driver ended the process that asked it, {status}: {said}; mend or remove it")
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    fn why(found: &Found) -> &str {
        assert_eq!(found.devices.len(), 1, "the processor alone");
        &found.absent[0].why
    }

    #[test]
    fn a_driver_that_crashes_or_hangs_leaves_the_processor() {
        let crashed = find(sh("echo segfault >&2; kill -SEGV $$"), MOST_PROBE);
        assert!(
            why(&crashed).contains("signal: 11") && why(&crashed).contains("segfault"),
            "{crashed:?}"
        );
        let hung = find(sh("exec sleep 60"), Duration::from_millis(50));
        assert!(why(&hung).contains("50 ms"), "{hung:?}");
        let mute = find(sh("echo hello"), MOST_PROBE);
        assert!(why(&mute).contains("does not read"), "{mute:?}");
        let none = find(Command::new("/nowhere"), MOST_PROBE);
        assert!(why(&none).contains("does not start"), "{none:?}");
    }

    #[test]
    fn what_a_child_found_is_read() {
        let found = Found {
            devices: vec![Cpu::new(1).info().clone()],
            absent: vec![],
        };
        let text = serde_json::to_string(&found).unwrap();
        assert_eq!(find(sh(&format!("echo '{text}'")), MOST_PROBE), found);
    }
}
