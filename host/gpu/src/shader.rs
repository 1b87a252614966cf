use crate::device::{Class, DeviceInfo};
use crate::error::GpuError;
use crate::fuel;
use crate::kernel::{Argument, Element};
use naga::valid::ValidationFlags;
use naga::{Module, ShaderStage};
use serde::{Deserialize, Serialize};

mod read;
mod size;

/// A plugin's own compute shader.
///
/// Buffers are bound in group 0: the inputs from binding 0 on, `var<storage, read>`, then the outputs, `var<storage, read_write>`,
/// zero at first. Nothing else is bound. Every loop of an invocation counts against one budget.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Shader {
    /// The text.
    pub wgsl: String,
    /// The entry point.
    pub entry: String,
    /// Workgroups in x, y and z.
    pub workgroups: [u32; 3],
    /// The length of each output in words of 4 bytes.
    pub outputs: Vec<u64>,
    /// Iterations of loops that one invocation may take in all.
    #[serde(default = "loops")]
    pub loops: u32,
    /// What it is held to.
    #[serde(default)]
    pub limits: ShaderLimits,
}

const fn loops() -> u32 {
    1 << 20
}

/// The limits of a plugin's shader.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ShaderLimits {
    /// Bytes of text. Default 64 KiB.
    pub text: u64,
    /// Bytes of all its buffers. Default 256 MiB.
    pub memory: u64,
    /// Invocations of one dispatch. Default 2²⁴.
    pub invocations: u64,
    /// Iterations that it may ask for as [`Shader::loops`]. Default 2²⁴.
    pub loops: u32,
    /// Bytes of variables that a workgroup shares. Default 16 KiB.
    pub shared: u64,
    /// Bytes of variables of one invocation. Default 16 KiB.
    pub private: u64,
    /// Statements and values when every call is written out and every array taken apart, as drivers do. Default 50,000.
    pub steps: u64,
}

impl Default for ShaderLimits {
    fn default() -> Self {
        Self {
            text: 64 << 10,
            memory: 256 << 20,
            invocations: 1 << 24,
            loops: 1 << 24,
            shared: 16 << 10,
            private: 16 << 10,
            steps: 50_000,
        }
    }
}

/// A shader that may go to a driver.
pub(crate) struct Checked {
    /// With its budget of loops built in.
    pub(crate) module: Module,
    /// That budget.
    pub(crate) loops: u32,
    /// Inputs, outputs, and last the flag that says whether the budget was used up.
    pub(crate) arguments: Vec<Argument>,
    /// Which of them it may write.
    pub(crate) writable: Vec<bool>,
}

/// Buffers that every device binds, the flag of loops included.
const MOST_BUFFERS: u32 = 8;

/// Mesa's software driver leaves every loop after 65,535 rounds and says nothing: the budget has to be used up before.
const MOST_SOFTWARE_LOOPS: u32 = 65_000;

/// The longest name of an entry point.
const MOST_NAME: u64 = 256;

/// The most workgroups in one dimension.
const MOST_WORKGROUPS: u32 = 65_535;

impl Shader {
    /// Whether it may run on this device with these inputs.
    ///
    /// # Errors
    /// [`GpuError::Shader`] for what is no WGSL or not allowed, [`GpuError::Memory`] and [`GpuError::Limit`] for too much of it.
    pub(crate) fn check(&self, inputs: &[&[u32]], device: &DeviceInfo) -> Result<Checked, GpuError> {
        self.check_sizes(inputs, device)?;
        let mut module = read::parse(&self.wgsl)?;
        // Loops get another way out below, after which barriers in them are uniform no more.
        let info = read::validate(&module, ValidationFlags::all())?;
        let buffers = inputs.len() + self.outputs.len();
        let writable = read::bindings(&module, inputs.len(), buffers)?;
        self.check_entry(&module, device)?;
        size::check_variables(&module, &self.limits)?;
        size::check_expanded(&module, &info, &self.limits)?;
        let loops = match device.class {
            Class::Software => self.loops.min(MOST_SOFTWARE_LOOPS),
            _ => self.loops,
        };
        fuel::add(&mut module, loops, buffers as u32);
        read::validate(
            &module,
            ValidationFlags::all() - ValidationFlags::CONTROL_FLOW_UNIFORMITY,
        )?;
        let input = |words: &&[u32]| Argument::input("input", Element::U32, words.len());
        let output = |words: &u64| Argument::output("output", Element::U32, *words as usize);
        let arguments = inputs.iter().map(input).chain(self.outputs.iter().map(output));
        Ok(Checked {
            module,
            loops,
            arguments: arguments
                .chain([Argument::output("flag", Element::U32, 1)])
                .collect(),
            writable: writable.into_iter().chain([true]).collect(),
        })
    }

    /// Whether its numbers are within limits; its text is not read.
    ///
    /// # Errors
    /// [`GpuError::Limit`] and [`GpuError::Memory`] for too much, [`GpuError::Shader`] where there is no output, or one of nothing.
    pub(crate) fn check_sizes(&self, inputs: &[&[u32]], device: &DeviceInfo) -> Result<(), GpuError> {
        let limits = &self.limits;
        let limit = |what: &str, asked: u64, most: u64| match asked <= most {
            true => Ok(()),
            false => Err(GpuError::Limit {
                what: what.into(),
                asked,
                most,
            }),
        };
        limit("bytes of WGSL", self.wgsl.len() as u64, limits.text)?;
        limit(
            "bytes of an entry point's name",
            self.entry.len() as u64,
            MOST_NAME,
        )?;
        limit(
            "iterations of loops",
            u64::from(self.loops),
            u64::from(limits.loops),
        )?;
        // One more is ours.
        let buffers = (inputs.len() + self.outputs.len()) as u64;
        limit(
            "buffers",
            buffers,
            u64::from(device.most_buffers.min(MOST_BUFFERS).saturating_sub(1)),
        )?;
        if self.outputs.is_empty() {
            return Err(GpuError::shader("it has no output"));
        }
        if self.outputs.contains(&0) {
            return Err(GpuError::shader("an output of it has no words"));
        }
        for groups in self.workgroups {
            limit(
                "workgroups in one dimension",
                u64::from(groups),
                u64::from(MOST_WORKGROUPS),
            )?;
        }
        let words = inputs
            .iter()
            .map(|words| words.len() as u64)
            .chain(self.outputs.iter().copied());
        let asked = words.fold(0, u64::saturating_add).saturating_mul(4);
        if asked > limits.memory {
            return Err(GpuError::Memory {
                what: "its buffers together".into(),
                asked,
                most: limits.memory,
            });
        }
        Ok(())
    }

    fn check_entry(&self, module: &Module, device: &DeviceInfo) -> Result<(), GpuError> {
        let entry = module.entry_points.iter().find(|entry| entry.name == self.entry);
        let Some(entry) = entry.filter(|entry| entry.stage == ShaderStage::Compute) else {
            return Err(GpuError::shader(&format!(
                "it has no compute entry point `{}`",
                self.entry
            )));
        };
        let product = |sides: [u32; 3]| {
            sides
                .iter()
                .fold(1u64, |all, side| all.saturating_mul(u64::from(*side)))
        };
        let threads = product(entry.workgroup_size);
        let limit = |what: &str, asked: u64, most: u64| GpuError::Limit {
            what: what.into(),
            asked,
            most,
        };
        if threads > u64::from(device.most_threads) {
            return Err(limit(
                "threads of a workgroup",
                threads,
                u64::from(device.most_threads),
            ));
        }
        let invocations = threads.saturating_mul(product(self.workgroups));
        if invocations > self.limits.invocations {
            return Err(limit("invocations", invocations, self.limits.invocations));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
