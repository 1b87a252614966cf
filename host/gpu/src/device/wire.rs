//! What passes between the process that holds a device and the one that asks it: a line of JSON that says what, then the words.

use super::{Device, DeviceInfo, Done, Work};
use crate::error::GpuError;
use crate::kernel::{Kernel, Words};
use crate::program::{Plan, Program};
use crate::shader::Shader;
use karman_types::Digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Asks for work; the constants of a program that is given follow, then the inputs.
#[derive(Deserialize, Serialize)]
pub(super) struct Request {
    /// Whose it is.
    pub(super) tenant: String,
    pub(super) order: Order,
    /// Words of each input.
    pub(super) inputs: Vec<usize>,
    pub(super) within: Duration,
}

/// What is asked for.
#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Order {
    Kernel(Kernel),
    Shader(Shader),
    /// A program that the device may still have.
    Kept(Digest),
    /// A program with its constants.
    Program {
        id: Digest,
        plan: Plan,
    },
}

/// The first line of the process: whether it has the device.
pub(super) type Greeting = Result<DeviceInfo, GpuError>;

/// What came of it; none where the device has no such program and is to be given it.
pub(super) type Outcome = Option<Result<Done, GpuError>>;

/// Answers; the outputs follow where there are any.
#[derive(Deserialize, Serialize)]
pub(super) struct Answer {
    /// Words of each output.
    outputs: Vec<usize>,
    took: Duration,
}

/// The longest line that is read.
const MOST_LINE: u64 = 1 << 20;

/// The most words of one message: 4 GiB.
const MOST_WORDS: usize = 1 << 30;

pub(super) fn write_line(to: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    to.write_all(&text)
}

/// None at the end.
pub(super) fn read_line<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    match from.by_ref().take(MOST_LINE).read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}

pub(super) fn read_words(from: &mut impl Read, lengths: &[usize]) -> io::Result<Vec<Words>> {
    if lengths
        .iter()
        .try_fold(0usize, |all, words| all.checked_add(*words))
        .is_none_or(|all| all > MOST_WORDS)
    {
        return Err(io::Error::other("a message is too long"));
    }
    let read = |words: &usize| {
        let mut buffer = vec![0; *words];
        from.read_exact(bytemuck::cast_slice_mut(&mut buffer))
            .map(|()| buffer)
    };
    lengths.iter().map(read).collect()
}

pub(super) fn write_request(
    to: &mut impl Write,
    request: &Request,
    constants: &[Words],
    inputs: &[Words],
) -> io::Result<()> {
    write_line(to, request)?;
    write_words(to, constants)?;
    write_words(to, inputs)?;
    to.flush()
}

fn write_words(to: &mut impl Write, all: &[Words]) -> io::Result<()> {
    all.iter()
        .try_for_each(|words| to.write_all(bytemuck::cast_slice(words)))
}

/// Reads an answer whose outputs have this many words each.
pub(super) fn read_answer(from: &mut impl BufRead, words: &[usize]) -> io::Result<Outcome> {
    let answer: Option<Result<Option<Answer>, GpuError>> = read_line(from)?;
    let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    match answer {
        Ok(Some(answer)) if answer.outputs != words => {
            let why = format!("outputs of {:?} words came, not of {words:?}", answer.outputs);
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
        Ok(Some(answer)) => Ok(Some(Ok(Done {
            outputs: read_words(from, &answer.outputs)?,
            took: answer.took,
        }))),
        Ok(None) => Ok(None),
        Err(error) => Ok(Some(Err(error))),
    }
}

/// Serves one device to the process at the other end until it goes away: what the child of a [`Remote`](super::Remote) runs.
/// A device that fails ends it too, with the error as its last answer: the next process gets a fresh one.
///
/// # Errors
/// When the other end cannot be read or written.
pub fn serve(
    opened: Result<Box<dyn Device>, GpuError>,
    mut from: impl BufRead,
    mut to: impl Write,
) -> io::Result<()> {
    let greeting: Greeting = opened
        .as_ref()
        .map(|device| device.info().clone())
        .map_err(Clone::clone);
    write_line(&mut to, &greeting)?;
    to.flush()?;
    let Ok(mut device) = opened else { return Ok(()) };
    while let Some(request) = read_line::<Request>(&mut from)? {
        let done = do_asked(&mut *device, request, &mut from)?;
        let broken = matches!(done, Some(Err(GpuError::Lost(_) | GpuError::Deadline(_))));
        let (answer, outputs) = match done {
            Some(Ok(Done { outputs, took })) => (
                Ok(Some(Answer {
                    outputs: outputs.iter().map(Vec::len).collect(),
                    took,
                })),
                outputs,
            ),
            Some(Err(error)) => (Err(error), Vec::new()),
            None => (Ok(None), Vec::new()),
        };
        write_line(&mut to, &answer)?;
        write_words(&mut to, &outputs)?;
        to.flush()?;
        if broken {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads the words of what is asked, and does it.
fn do_asked(device: &mut dyn Device, request: Request, from: &mut impl Read) -> io::Result<Outcome> {
    let Request {
        tenant,
        order,
        inputs: lengths,
        within,
    } = request;
    let constants = match &order {
        Order::Program { plan, .. } => read_words(from, &plan.constants)?,
        _ => Vec::new(),
    };
    let inputs = read_words(from, &lengths)?;
    let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
    device.set_tenant(&tenant);
    let work = match order {
        Order::Kernel(kernel) => Work::Kernel(kernel),
        Order::Shader(shader) => Work::Shader(shader),
        Order::Kept(id) => return Ok(device.run_kept(id, &inputs, within)),
        Order::Program { id, plan } => match Program::known(id, plan, constants) {
            Ok(program) => Work::Program(Arc::new(program)),
            Err(error) => return Ok(Some(Err(error))),
        },
    };
    Ok(Some(device.run(&work, &inputs, within)))
}

#[cfg(test)]
mod tests;
