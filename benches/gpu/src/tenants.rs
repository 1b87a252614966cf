//! Two tenants on one device, one with large pieces of work and one with small: how the device's time is shared.

use anyhow::Result;
use karman_gpu::check::inputs;
use karman_gpu::{Answer, Device, Done, Gemm, GpuError, Job, Kernel, Queue, Words, Work};
use karman_study::report::{Report, Target};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Pieces that each tenant keeps waiting.
const AHEAD: usize = 4;

/// How long both are served.
const SERVED: Duration = Duration::from_secs(20);

struct Told(&'static str, Sender<(&'static str, Result<Done, GpuError>)>);

impl Answer for Told {
    fn is_awaited(&self) -> bool {
        true
    }

    fn answer(self: Box<Self>, done: Result<Done, GpuError>) {
        // The study may be over.
        let _ = self.1.send((self.0, done));
    }
}

/// Measures the share of the one that had less, over half of all.
pub(crate) fn row(report: &mut Report, device: impl Device + 'static, quick: bool) -> Result<()> {
    let key = format!("share_of_two.{}", device.info().id);
    let side = if device.info().is_hardware() { 1024 } else { 192 };
    let served = if quick { SERVED / 10 } else { SERVED };
    let queue = Queue::start(Box::new(device), 2 * AHEAD)?;
    let (sender, told) = channel();
    let work = |tenant: &'static str| -> Result<(Kernel, Arc<[Words]>)> {
        let side = if tenant == "large" { side } else { side / 3 };
        let kernel = Kernel::Gemm(Gemm {
            m: side,
            n: side,
            k: side,
            ..Gemm::default()
        });
        let inputs = inputs(&kernel, 1)?;
        Ok((kernel, inputs.into()))
    };
    let kinds = [("large", work("large")?), ("small", work("small")?)];
    let push = |tenant: &'static str| -> Result<()> {
        let (_, (kernel, inputs)) = kinds
            .iter()
            .find(|(name, _)| *name == tenant)
            .expect("one of the two");
        let answer = Box::new(Told(tenant, sender.clone()));
        let within = Duration::from_secs(600);
        Ok(queue.push(
            tenant,
            Job {
                work: Work::Kernel(kernel.clone()),
                inputs: inputs.clone(),
                within,
                on_device: within,
                answer,
            },
        )?)
    };
    for _ in 0..AHEAD {
        push("large")?;
        push("small")?;
    }
    let mut had = [Duration::ZERO; 2];
    let start = Instant::now();
    while start.elapsed() < served {
        let (tenant, done) = told.recv()?;
        had[usize::from(tenant == "small")] += done?.took;
        push(tenant)?;
    }
    let half = (had[0] + had[1]).as_secs_f64() / 2.0;
    let least = had[0].min(had[1]).as_secs_f64();
    report.figure(&key, least / half, "ratio", Target::AtLeast(0.9));
    Ok(())
}
