//! What devices a machine has, and why there is none where there could be.

use crate::device::{self, Api, Cpu, Device, DeviceInfo, adapters, cuda_devices, describe};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

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

/// The most that a child may say.
const MOST_OUTPUT: u64 = 1 << 20;

/// Time for what a process that has ended said last.
const MOST_LAST_WORDS: Duration = Duration::from_secs(1);

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
pub fn find(mut child: Command, within: Duration) -> Found {
    let asked = child
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let answered = asked
        .map_err(|error| format!("the probe does not start: {error}"))
        .and_then(|child| wait(child, within));
    let read = |text: String| {
        serde_json::from_str(text.trim())
            .map_err(|error| format!("the probe's answer does not read: {error}"))
    };
    answered.and_then(read).unwrap_or_else(|why| Found {
        devices: vec![Cpu::new(0).info().clone()],
        absent: vec![Absent {
            what: "gpu".into(),
            why,
        }],
    })
}

/// What the child prints. It comes back in time whatever the child does: one that is held within its driver does not die, and what
/// it has started may hold its streams.
fn wait(mut child: Child, within: Duration) -> Result<String, String> {
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("the probe has no streams".into());
    };
    let end = Instant::now() + within;
    let (said, complained) = match (reader(stdout), reader(stderr)) {
        (Ok(said), Ok(complained)) => (said, complained),
        (Err(why), _) | (_, Err(why)) => {
            device::end(&mut child);
            return Err(why);
        }
    };
    let text = said.recv_timeout(within);
    let status = match text {
        Ok(_) => until(&mut child, end),
        Err(_) => None,
    };
    let Some((status, text)) = status.zip(text.ok()) else {
        device::end(&mut child);
        let within = karman_types::format_duration(within);
        return Err(format!(
            "a GPU driver did not answer within {within}; mend or remove it"
        ));
    };
    if status.success() {
        return Ok(text);
    }
    let complaint = complained.recv_timeout(MOST_LAST_WORDS).unwrap_or_default();
    let mut lines = complaint.lines();
    let last = lines.rfind(|line| !line.trim().is_empty());
    let last = last.map_or_else(String::new, |last| format!(": {last}"));
    Err(format!(
        "a GPU driver ended the process that asked it, {status}{last}; mend or remove it"
    ))
}

/// How a child ends until then, if it does.
fn until(child: &mut Child, end: Instant) -> Option<ExitStatus> {
    loop {
        match child.try_wait() {
            Ok(None) if Instant::now() < end => std::thread::park_timeout(Duration::from_millis(2)),
            ended => return ended.ok().flatten(),
        }
    }
}

/// All that comes out of a stream, once it has ended. The thread that reads stays for as long as a process holds the other end.
fn reader(from: impl Read + Send + 'static) -> Result<Receiver<String>, String> {
    let (sender, text) = channel();
    let read = move || {
        let mut bytes = Vec::new();
        let _ = from.take(MOST_OUTPUT).read_to_end(&mut bytes);
        // Who does not wait any more has had an answer.
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    };
    let spawned = std::thread::Builder::new()
        .name("karman-gpu-probe".into())
        .spawn(read);
    match spawned {
        Ok(_) => Ok(text),
        Err(error) => Err(format!("no thread for the probe: {error}")),
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

    /// As a process does that its driver holds: the streams stay open, whichever process is killed, until the test ends.
    #[test]
    fn streams_that_nobody_closes_hold_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let holds = format!(
            "(while [ -e {} ]; do sleep 0.05; done) &",
            folder.path().display()
        );
        let (sender, found) = channel();
        for rest in ["exec sleep 600", "exit 0"] {
            let (sender, script) = (sender.clone(), format!("{holds} {rest}"));
            std::thread::spawn(move || sender.send(find(sh(&script), Duration::from_millis(50))));
        }
        for _ in 0..2 {
            let found = found.recv_timeout(MOST_PROBE).expect("it comes back");
            assert!(why(&found).contains("50 ms"), "{found:?}");
        }
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
