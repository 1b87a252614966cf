//! What this program runs as a child of itself: drivers crash and hang there, not here.

use crate::app::App;
use clap::Args;
use karman_gpu::tune::Tuned;
use karman_gpu::{Device, Wgpu};
use karman_types::TaskError;
use serde_json::json;
use std::io::{BufReader, BufWriter, stdin, stdout};
use std::path::PathBuf;

/// `karman serve-gpu`
#[derive(Args, Debug)]
pub(crate) struct ServeGpu {
    /// The device
    device: String,
    /// Shapes of tiles that were measured
    #[arg(long)]
    tiles: Option<PathBuf>,
}

/// Memory in which any shader within its limits can be read.
const MOST_READING: u64 = 512 << 20;

impl ServeGpu {
    /// Holds the device and does what standard input asks until that ends.
    pub(crate) fn run(&self) -> Result<(), TaskError> {
        #[cfg(target_os = "linux")]
        alone::end_with_parent();
        let opened = Wgpu::open(&self.device, None).map(|mut device| {
            let tuned = self.tiles.as_deref().map(Tuned::load).unwrap_or_default();
            if let Some(tile) = tuned.get(device.info()) {
                device.set_tile(tile);
            }
            device.end_beyond(MOST_READING);
            Box::new(device) as Box<dyn Device>
        });
        let served = karman_gpu::serve(
            opened,
            BufReader::new(stdin().lock()),
            BufWriter::new(stdout().lock()),
        );
        served.map_err(|error| TaskError::unavailable(format!("the other end is gone: {error}")))
    }
}

/// What a process does that holds a driver and may be held by it.
#[cfg(target_os = "linux")]
mod alone {
    use rustix::process::{Signal, getpid, getppid, kill_process};
    use std::time::Duration;

    /// Ends this process when its parent is gone, which a thread within a driver does not see; and offers it first where the
    /// machine runs out of memory.
    pub(super) fn end_with_parent() {
        // Where the kernel has no such file, it chooses by itself.
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        let parent = getppid();
        std::thread::spawn(move || {
            while getppid() == parent {
                std::thread::park_timeout(Duration::from_secs(1));
            }
            let _ = kill_process(getpid(), Signal::KILL);
        });
    }
}

/// `karman probe-gpu`: what drivers say, as one line of JSON.
pub(crate) fn probe(app: &App) -> Result<(), TaskError> {
    app.output.line(json!(karman_gpu::find::probe()))
}
