//! `karman:gpu/compute` (0.1.0): kernels of the host with the grant `gpu:kernels`, a plugin's own shaders with `gpu:shaders`.

use super::bindings::host::karman::gpu::compute::{self, Outcome, Place as WitPlace, Shader as WitShader};
use super::bindings::host::karman::task::types;
use crate::convert;
use crate::host::Host;
use futures::future::BoxFuture;
use karman_types::{Grant, TaskError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The back-end of GPU work.
pub trait Compute: Send + Sync {
    /// Does one piece of work for a plugin. Dropping the future stops waiting for it.
    fn run(&self, order: Order) -> BoxFuture<'static, Result<Computed, TaskError>>;
}

/// A piece of work.
#[derive(Clone, Debug)]
pub struct Order {
    /// The plugin, with whom others share the device.
    pub tenant: String,
    /// What to do.
    pub work: Work,
    /// Its buffers, each a multiple of 4 bytes.
    pub inputs: Vec<Vec<u8>>,
    /// Where it may be done.
    pub place: Place,
    /// The time that the call has left.
    pub within: Duration,
}

/// A piece of GPU work.
#[derive(Clone, Debug)]
pub enum Work {
    /// A kernel of the host, described as JSON.
    Kernel(String),
    /// A shader of the plugin's own.
    Shader {
        /// WGSL.
        wgsl: String,
        /// The entry point.
        entry: String,
        /// In x, y and z.
        workgroups: [u32; 3],
        /// Bytes of each output.
        outputs: Vec<u64>,
        /// Iterations of loops of one invocation.
        loops: u32,
    },
}

/// The kind of device that work may run on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// On a GPU or not at all.
    Gpu,
    /// On a GPU, else on the processor.
    GpuOrCpu,
    /// On the processor.
    Cpu,
}

/// The result of GPU work.
#[derive(Clone, Debug)]
pub struct Computed {
    /// The outputs, in order.
    pub outputs: Vec<Vec<u8>>,
    /// The device in words.
    pub ran_on: String,
    /// Why it was the processor although a GPU was wished for.
    pub fell_back: Option<String>,
    /// How long the device was kept.
    pub took: Duration,
}

impl Host {
    async fn compute(
        &mut self,
        grant: Grant,
        work: Work,
        inputs: Vec<Vec<u8>>,
        place: Place,
    ) -> Result<Outcome, TaskError> {
        let name = &self.plugin.name;
        if !self.plugin.grants.allows(&grant) {
            return Err(TaskError::denied(format!("`{name}` has no grant `{grant}`"))
                .with_hint(format!("karman node grant {name} {grant}")));
        }
        if let Some(input) = inputs.iter().find(|input| !input.len().is_multiple_of(4)) {
            let bytes = input.len();
            return Err(TaskError::invalid(format!(
                "a buffer has {bytes} bytes; they come in fours"
            )));
        }
        let unavailable = || TaskError::unavailable("this host has no devices for plugins");
        let compute: Arc<dyn Compute> = self.services.compute.clone().ok_or_else(unavailable)?;
        let order = Order {
            tenant: name.clone(),
            work,
            inputs,
            place,
            within: self.deadline.saturating_duration_since(Instant::now()),
        };
        let done = compute.run(order).await?;
        // Of several pieces the one that fell back is told.
        match &done.fell_back {
            Some(why) => self.ran_on = Some(format!("{} ({why})", done.ran_on)),
            None => _ = self.ran_on.get_or_insert_with(|| done.ran_on.clone()),
        }
        Ok(Outcome {
            outputs: done.outputs,
            ran_on: done.ran_on,
            fell_back: done.fell_back,
            took: done.took.as_micros() as u64,
        })
    }
}

impl compute::Host for Host {
    async fn run_kernel(
        &mut self,
        kernel: String,
        inputs: Vec<Vec<u8>>,
        on: WitPlace,
    ) -> wasmtime::Result<Result<Outcome, types::Error>> {
        let place = match on {
            WitPlace::Gpu => Place::Gpu,
            WitPlace::GpuOrCpu => Place::GpuOrCpu,
            WitPlace::Cpu => Place::Cpu,
        };
        let done = self
            .compute(Grant::GpuKernels, Work::Kernel(kernel), inputs, place)
            .await;
        Ok(done.map_err(convert::error_to_guest))
    }

    async fn run_shader(
        &mut self,
        shader: WitShader,
        inputs: Vec<Vec<u8>>,
    ) -> wasmtime::Result<Result<Outcome, types::Error>> {
        let (x, y, z) = shader.workgroups;
        let work = Work::Shader {
            wgsl: shader.wgsl,
            entry: shader.entry,
            workgroups: [x, y, z],
            outputs: shader.outputs,
            loops: shader.loops,
        };
        let done = self.compute(Grant::GpuShaders, work, inputs, Place::Gpu).await;
        Ok(done.map_err(convert::error_to_guest))
    }
}
