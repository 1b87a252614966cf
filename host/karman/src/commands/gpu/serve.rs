//! What this program runs as a child of itself: drivers crash and hang there, not here.

use crate::app::App;
use crate::parent;
use clap::Args;
use karman_gpu::tune::Tuned;
use karman_gpu::{Cuda, Device, GpuError, Wgpu};
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
        // The machine takes it first where it runs out of memory. Where the kernel has no such file, it chooses by itself.
        #[cfg(target_os = "linux")]
        let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
        parent::end_with(rustix::process::getppid());
        let served = karman_gpu::serve(
            self.open(),
            BufReader::new(stdin().lock()),
            BufWriter::new(stdout().lock()),
        );
        served.map_err(|error| TaskError::unavailable(format!("the other end is gone: {error}")))
    }

    fn open(&self) -> Result<Box<dyn Device>, GpuError> {
        if Cuda::is_named(&self.device) {
            return Ok(Box::new(Cuda::open(&self.device)?));
        }
        let mut device = Wgpu::open(&self.device, None)?;
        let tuned = self.tiles.as_deref().map(Tuned::load).unwrap_or_default();
        if let Some(tile) = tuned.get(device.info()) {
            device.set_tile(tile);
        }
        device.end_beyond(MOST_READING);
        Ok(Box::new(device))
    }
}

/// `karman probe-gpu`: what drivers say, as one line of JSON.
pub(crate) fn probe(app: &App) -> Result<(), TaskError> {
    app.output.line(json!(karman_gpu::find::probe()))
}
