//! What passes between the process that holds a device and the one that asks it: a line of JSON that says what, then the words.

use super::{Device, DeviceInfo, Done, Work};
use crate::error::GpuError;
use crate::kernel::Words;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

/// Asks for work; the inputs follow.
#[derive(Deserialize, Serialize)]
pub(super) struct Request {
    pub(super) work: Work,
    /// Words of each input.
    pub(super) inputs: Vec<usize>,
    pub(super) within: Duration,
}

/// The first line of the process: whether it has the device.
pub(super) type Greeting = Result<DeviceInfo, GpuError>;

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

pub(super) fn write_request(to: &mut impl Write, request: &Request, inputs: &[Words]) -> io::Result<()> {
    write_line(to, request)?;
    inputs
        .iter()
        .try_for_each(|words| to.write_all(bytemuck::cast_slice(words)))?;
    to.flush()
}

/// Reads an answer whose outputs have so many words each.
pub(super) fn read_answer(from: &mut impl BufRead, words: &[usize]) -> io::Result<Result<Done, GpuError>> {
    let answer: Option<Result<Answer, GpuError>> = read_line(from)?;
    let answer = answer.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    match answer {
        Ok(answer) if answer.outputs != words => {
            let why = format!("outputs of {:?} words came, not of {words:?}", answer.outputs);
            Err(io::Error::new(io::ErrorKind::InvalidData, why))
        }
        Ok(answer) => Ok(Ok(Done {
            outputs: read_words(from, &answer.outputs)?,
            took: answer.took,
        })),
        Err(error) => Ok(Err(error)),
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
        let inputs = read_words(&mut from, &request.inputs)?;
        let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
        let done = device.run(&request.work, &inputs, request.within);
        let broken = matches!(done, Err(GpuError::Lost(_) | GpuError::Deadline(_)));
        let (answer, outputs) = match done {
            Ok(Done { outputs, took }) => (
                Ok(Answer {
                    outputs: outputs.iter().map(Vec::len).collect(),
                    took,
                }),
                outputs,
            ),
            Err(error) => (Err(error), Vec::new()),
        };
        write_line(&mut to, &answer)?;
        outputs
            .iter()
            .try_for_each(|words| to.write_all(bytemuck::cast_slice(words)))?;
        to.flush()?;
        if broken {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;
    use crate::kernel::{Fold, Kernel, Reduce, f32_words, floats};

    #[test]
    fn an_answer_of_another_length_is_none() {
        let answer: Result<Answer, GpuError> = Ok(Answer {
            outputs: vec![1 << 29],
            took: Duration::ZERO,
        });
        let mut line = Vec::new();
        write_line(&mut line, &answer).unwrap();
        let error = read_answer(&mut line.as_slice(), &[1]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn what_is_asked_is_answered() {
        let work = Work::Kernel(Kernel::Reduce(Reduce {
            fold: Fold::Sum,
            rows: 1,
            columns: 3,
        }));
        let inputs = [f32_words(&[1.0, 2.0, 4.0])];
        let mut asked = Vec::new();
        let request = Request {
            work,
            inputs: vec![3],
            within: Duration::from_secs(1),
        };
        write_request(&mut asked, &request, &inputs).unwrap();
        let wrong = Request {
            inputs: vec![2],
            ..request
        };
        write_request(&mut asked, &wrong, &[f32_words(&[1.0, 2.0])]).unwrap();
        let mut answered = Vec::new();
        serve(Ok(Box::new(Cpu::new(1))), asked.as_slice(), &mut answered).unwrap();
        let mut answered = answered.as_slice();
        let greeting: Greeting = read_line(&mut answered).unwrap().unwrap();
        assert_eq!(greeting.unwrap().id, "cpu");
        assert_eq!(
            floats(&read_answer(&mut answered, &[1]).unwrap().unwrap().outputs[0]),
            [7.0]
        );
        assert!(matches!(
            read_answer(&mut answered, &[1]).unwrap(),
            Err(GpuError::Kernel { .. })
        ));
        assert!(read_answer(&mut answered, &[1]).is_err());
    }
}
