//! Several kernels as one piece of work: what passes between them stays on the device.

mod layout;

use layout::Layout;

use crate::device::Cpu;
use crate::error::GpuError;
use crate::kernel::{Argument, Kernel, Panels, Role, Words};
use karman_types::Digest;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::OnceLock;

/// Kernels one after the other, and what each reads.
///
/// Buffers are slots with numbers: first the constants, then the inputs, then the outputs of each call in their order. A call reads
/// slots that are there before it, and makes new ones; nothing is written twice.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    /// Words of each constant: of what is the same in every run.
    pub constants: Vec<usize>,
    /// Words of each input.
    pub inputs: Vec<usize>,
    /// What is done, in order.
    pub calls: Vec<Call>,
    /// The slots that are given back, each made by a call.
    pub outputs: Vec<usize>,
}

/// One kernel of a program.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Call {
    /// Which.
    pub kernel: Kernel,
    /// The slots that it reads, in the order of its inputs.
    pub inputs: Vec<usize>,
}

/// A [`Plan`] that means something, with its constants. Made once, it runs any number of times on any device; a device keeps what it
/// made of it, so that the constants travel once.
pub struct Program {
    id: Digest,
    plan: Plan,
    constants: Vec<Words>,
    layout: Layout,
    /// For each call whose weights are laid out for the processor: these, from its first run there.
    panels: Vec<Option<OnceLock<Panels>>>,
}

/// The most kernels of a program: its description stays within one line of 1 MiB.
const MOST_CALLS: usize = 1024;

/// The most constants of a program.
const MOST_CONSTANTS: usize = 2048;

/// The most inputs of a program, and the most outputs.
const MOST_ENDS: usize = 64;

/// The most words of one buffer, and of all buffers together: 1 GiB and 4 GiB.
const MOST_WORDS: usize = 1 << 28;
const MOST_TOGETHER: u64 = 1 << 30;

/// Bytes of weights that are laid out for the processor at most, beside the constants; others are read as they are: 1 GiB.
const MOST_IN_PANELS: usize = 1 << 30;

/// What a program is called in errors.
const NAME: &str = "program";

impl Plan {
    /// Where each of its buffers lies, if it means something.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] for a slot that is not there or is of another length and for a kernel whose shape means nothing,
    /// [`GpuError::Limit`] and [`GpuError::Memory`] for too much.
    pub(crate) fn layout(&self) -> Result<Layout, GpuError> {
        for (what, count, most) in [
            ("kernels of a program", self.calls.len(), MOST_CALLS),
            ("constants of a program", self.constants.len(), MOST_CONSTANTS),
            ("inputs of a program", self.inputs.len(), MOST_ENDS),
            ("outputs of a program", self.outputs.len(), MOST_ENDS),
        ] {
            if count > most {
                return Err(GpuError::Limit {
                    what: what.into(),
                    asked: count as u64,
                    most: most as u64,
                });
            }
        }
        let given: Vec<usize> = self.constants.iter().chain(&self.inputs).copied().collect();
        if let Some(words) = given.iter().find(|words| !(1..=MOST_WORDS).contains(*words)) {
            let must = format!("a constant or an input has from 1 to {MOST_WORDS}");
            return Err(GpuError::kernel(NAME, "words", *words, must));
        }
        let mut slots = given;
        let mut arguments = Vec::with_capacity(self.calls.len());
        for (number, call) in self.calls.iter().enumerate() {
            let of_call = call.kernel.arguments()?;
            call.check(number, &of_call, &slots)?;
            let made = of_call.iter().filter(|argument| argument.role == Role::Output);
            slots.extend(made.map(|argument| argument.words));
            arguments.push(of_call);
        }
        self.check_outputs(slots.len())?;
        let layout = Layout::new(self, &arguments);
        match layout.words() > MOST_TOGETHER {
            true => Err(GpuError::Memory {
                what: "a program with all its buffers".into(),
                asked: layout.words().saturating_mul(4),
                most: MOST_TOGETHER * 4,
            }),
            false => Ok(layout),
        }
    }

    /// A place for the weights of each call that are laid out for the processor: constants of single precision, as many as there is room for.
    fn panels(&self) -> Vec<Option<OnceLock<Panels>>> {
        let mut room = MOST_IN_PANELS;
        let of_call = |call: &Call| match &call.kernel {
            Kernel::Gemm(gemm) if !gemm.half && call.inputs[1] < self.constants.len() => {
                room = room.checked_sub(gemm.bytes_of_panels())?;
                Some(OnceLock::new())
            }
            _ => None,
        };
        self.calls.iter().map(of_call).collect()
    }

    /// The first slot that a call makes.
    fn first_made(&self) -> usize {
        self.constants.len() + self.inputs.len()
    }

    fn check_outputs(&self, slots: usize) -> Result<(), GpuError> {
        let made = self.first_made()..slots;
        if self.outputs.is_empty() {
            return Err(GpuError::kernel(NAME, "outputs", 0, "a program gives something"));
        }
        match self.outputs.iter().find(|slot| !made.contains(*slot)) {
            Some(slot) => {
                let must = format!("calls make the slots from {} to below {}", made.start, made.end);
                Err(GpuError::kernel(NAME, "outputs", *slot, must))
            }
            None => Ok(()),
        }
    }
}

impl Call {
    /// Whether the slots that it reads are there, given the words of those before it, and as long as its kernel takes them.
    fn check(&self, number: usize, arguments: &[Argument], slots: &[usize]) -> Result<(), GpuError> {
        let name = || format!("call {number} of the program, {}", self.kernel.name());
        let takes = arguments.iter().filter(|argument| argument.role == Role::Input);
        let count = takes.clone().count();
        if count != self.inputs.len() {
            let must = format!("it takes {count}");
            return Err(GpuError::kernel(&name(), "inputs", self.inputs.len(), must));
        }
        for (argument, slot) in takes.zip(&self.inputs) {
            match slots.get(*slot) {
                Some(words) if *words == argument.words => {}
                Some(words) => {
                    let must = format!("it has {} bytes", argument.words * 4);
                    return Err(GpuError::kernel(&name(), argument.name, words * 4, must));
                }
                None => {
                    let must = format!("only slots below {} are there before it", slots.len());
                    return Err(GpuError::kernel(&name(), argument.name, *slot, must));
                }
            }
        }
        Ok(())
    }
}

impl Program {
    /// A program of this plan with these constants.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] for a slot that is not there or is of another length, for a constant of another length and for a kernel
    /// whose shape means nothing; [`GpuError::Limit`] and [`GpuError::Memory`] for too much.
    pub fn new(plan: Plan, constants: Vec<Words>) -> Result<Self, GpuError> {
        let mut text = format!("{plan:?}").into_bytes();
        for words in &constants {
            text.extend(Digest::of(bytemuck::cast_slice(words)).as_bytes());
        }
        Self::known(Digest::of(&text), plan, constants)
    }

    /// The same where its id was told.
    pub(crate) fn known(id: Digest, plan: Plan, constants: Vec<Words>) -> Result<Self, GpuError> {
        let layout = plan.layout()?;
        let given: Vec<&[u32]> = constants.iter().map(Vec::as_slice).collect();
        check_lengths("constants", &plan.constants, &given)?;
        let panels = plan.panels();
        Ok(Self {
            id,
            plan,
            constants,
            layout,
            panels,
        })
    }

    /// What tells it from others: the digest of its plan and its constants.
    pub const fn id(&self) -> Digest {
        self.id
    }

    /// What it does.
    pub const fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes of all its buffers on a device, its constants among them.
    pub fn bytes(&self) -> u64 {
        self.layout.words() * 4
    }

    /// Arithmetic operations; a multiplication with its addition is two.
    pub fn operations(&self) -> u64 {
        let calls = self.plan.calls.iter();
        calls
            .map(|call| call.kernel.operations())
            .fold(0, u64::saturating_add)
    }

    /// Whether these are the inputs that it takes.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when there are more or fewer, or one has another length.
    pub fn check_inputs(&self, inputs: &[&[u32]]) -> Result<(), GpuError> {
        check_lengths("inputs", &self.plan.inputs, inputs)
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn constants(&self) -> &[Words] {
        &self.constants
    }

    /// Words of each output.
    pub(crate) fn output_words(&self) -> Vec<usize> {
        let outputs = self.plan.outputs.iter();
        outputs.map(|slot| self.layout.words_of(*slot)).collect()
    }

    /// Runs it on the processor, until its time is over: what it answers then is of no use.
    ///
    /// # Errors
    /// Those of [`Program::check_inputs`].
    pub(crate) fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]]) -> Result<Vec<Words>, GpuError> {
        self.check_inputs(inputs)?;
        let constants = self.constants.iter().map(Vec::as_slice);
        let given: Vec<&[u32]> = constants.chain(inputs.iter().copied()).collect();
        let mut made: Vec<Words> = Vec::new();
        for (number, (call, over)) in self.plan.calls.iter().zip(&self.layout.over).enumerate() {
            if cpu.is_late() {
                return Ok(Vec::new());
            }
            let read = |slot: &usize| match given.get(*slot) {
                Some(words) => *words,
                None => made[*slot - given.len()].as_slice(),
            };
            let inputs: Vec<&[u32]> = call.inputs.iter().map(read).collect();
            match (&call.kernel, self.panels(cpu, number)) {
                (Kernel::Gemm(gemm), Some(panels)) => made.push(gemm.with_panels(cpu, &inputs, panels)),
                _ => made.extend(call.kernel.on_cpu(cpu, &inputs)?),
            }
            // Nobody reads them any more.
            over.iter()
                .for_each(|slot| made[*slot - given.len()] = Words::new());
        }
        let (slots, first) = (&self.plan.outputs, given.len());
        let output = |(at, slot): (usize, &usize)| match slots[at + 1..].contains(slot) {
            true => made[*slot - first].clone(),
            false => std::mem::take(&mut made[*slot - first]),
        };
        Ok(slots.iter().enumerate().map(output).collect())
    }

    /// The constant weights of a call, laid out at its first run there; none for those that are read as they are, and where time was over
    /// before all of them lay there.
    fn panels(&self, cpu: &Cpu, number: usize) -> Option<&Panels> {
        let (place, call) = (self.panels[number].as_ref()?, &self.plan.calls[number]);
        if let (Kernel::Gemm(gemm), None) = (&call.kernel, place.get()) {
            let panels = gemm.panels(cpu, &self.constants[call.inputs[1]])?;
            return Some(place.get_or_init(|| panels));
        }
        place.get()
    }
}

/// Whether there are as many of these as a program takes, each as long.
pub(crate) fn check_lengths(what: &str, wanted: &[usize], given: &[&[u32]]) -> Result<(), GpuError> {
    if wanted.len() != given.len() {
        let must = format!("it takes {}", wanted.len());
        return Err(GpuError::kernel(NAME, what, given.len(), must));
    }
    let mut each = wanted.iter().zip(given).enumerate();
    match each.find(|(_, (words, given))| **words != given.len()) {
        Some((number, (words, given))) => {
            let must = format!("it has {} bytes", words * 4);
            let field = format!("{what}, number {number},");
            Err(GpuError::kernel(NAME, &field, given.len() * 4, must))
        }
        None => Ok(()),
    }
}

/// The same id is the same program.
impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program")
            .field("id", &self.id)
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
