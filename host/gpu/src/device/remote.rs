use super::wire::{Greeting, Order, Outcome, Request, read_answer, read_line, write_request};
use super::{Device, DeviceInfo, Done, Work};
use crate::error::GpuError;
use crate::kernel::{Role, Words};
use crate::program::Program;
use std::ffi::OsString;
use std::io::{self, BufReader, BufWriter};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Time for a process to start and its driver to open the device.
const MOST_START: Duration = Duration::from_secs(30);

/// How long a device that could not be had again is not asked for.
const PAUSE: Duration = Duration::from_secs(60);

/// Time beyond that of the work in which the device's own process may give up and say so.
const GRACE: Duration = Duration::from_millis(500);

/// How much of the address space its allocator (mimalloc) takes ahead at once. The least that it knows: what it has taken does not count
/// against the memory that a shader may take to be read, and by itself it takes a gigabyte.
const RESERVES: (&str, &str) = ("MIMALLOC_ARENA_RESERVE", "64MiB");

/// The options of the process that holds a device.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// The program.
    pub program: PathBuf,
    /// Its arguments: with them it runs [`serve`](super::serve) on its standard streams.
    pub arguments: Vec<OsString>,
}

/// A device in a process of its own. Work that does not end in time ends with that process; the next work starts another. Whatever
/// a shader does to a driver, it does it there.
#[derive(Debug)]
pub struct Remote {
    options: RemoteOptions,
    info: DeviceInfo,
    process: Option<Process>,
    /// When no process could be started last, and why.
    missed: Option<(Instant, GpuError)>,
    started: u64,
    /// Whose the present work is.
    tenant: String,
}

/// A running process, and the thread that writes to it and reads from it.
#[derive(Debug)]
struct Process {
    child: Child,
    ask: Sender<Asked>,
    answers: Receiver<io::Result<Outcome>>,
}

/// What is written, and the words of each output that comes back.
struct Asked {
    request: Request,
    /// Whose constants go before the inputs.
    given: Option<Arc<Program>>,
    inputs: Arc<[Words]>,
    outputs: Vec<usize>,
}

impl Remote {
    /// Starts a process and asks what device it holds.
    ///
    /// # Errors
    /// [`GpuError::Absent`] when it does not start or its device does not open, [`GpuError::Deadline`] when that takes too long.
    pub fn start(options: RemoteOptions) -> Result<Self, GpuError> {
        let (process, info) = Process::start(&options)?;
        Ok(Self {
            options,
            info,
            process: Some(process),
            missed: None,
            started: 1,
            tenant: String::new(),
        })
    }

    /// How many processes it has started: one more each time that a device was lost.
    pub const fn started(&self) -> u64 {
        self.started
    }

    /// The process that holds the device: the one that is there, or a new one. Where there was none to be had, work that waits is told
    /// so at once for a while, instead of each waiting for another try.
    fn process(&mut self) -> Result<&mut Process, GpuError> {
        Ok(match &mut self.process {
            Some(process) => process,
            none => {
                if let Some((at, error)) = &self.missed
                    && at.elapsed() < PAUSE
                {
                    return Err(error.clone());
                }
                let started = Process::start(&self.options);
                self.missed = match &started {
                    Ok(_) => None,
                    Err(error) => Some((Instant::now(), error.clone())),
                };
                let (process, info) = started?;
                self.info = info;
                self.started += 1;
                none.insert(process)
            }
        })
    }

    /// The words of each output. What is plainly wrong is found here: it costs no process, and a message stays short.
    fn outputs(&self, work: &Work, inputs: &[&[u32]]) -> Result<Vec<usize>, GpuError> {
        match work {
            Work::Kernel(kernel) => {
                let arguments = kernel.check_inputs(inputs)?;
                let outputs = arguments.iter().filter(|argument| argument.role == Role::Output);
                Ok(outputs.map(|argument| argument.words).collect())
            }
            Work::Shader(shader) => {
                shader.check_sizes(inputs, &self.info)?;
                Ok(shader.outputs.iter().map(|words| *words as usize).collect())
            }
            Work::Program(program) => {
                program.check_inputs(inputs)?;
                Ok(program.output_words())
            }
        }
    }

    /// Has it done by the process that is there, or by a new one; none where its device has no such program. A process that fails, or
    /// takes too long, is ended.
    fn ask(&mut self, asked: Asked) -> Outcome {
        let within = asked.request.within;
        let process = match self.process() {
            Ok(process) => process,
            Err(error) => return Some(Err(error)),
        };
        let answered = match process.ask.send(asked) {
            Ok(()) => process.answers.recv_timeout(within.saturating_add(GRACE)),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        };
        let failed = match answered {
            Ok(Ok(Some(Err(error @ (GpuError::Lost(_) | GpuError::Deadline(_)))))) => error,
            Ok(Ok(outcome)) => return outcome,
            Err(RecvTimeoutError::Timeout) => GpuError::Deadline(within),
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                GpuError::lost(&error.to_string())
            }
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => GpuError::Lost(process.ended()),
        };
        // Dropping it ends the process and with it whatever the device still does for it.
        self.process = None;
        Some(Err(failed))
    }
}

impl Device for Remote {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn set_tenant(&mut self, tenant: &str) {
        tenant.clone_into(&mut self.tenant);
    }

    /// The time counts from the hand-over of the inputs. Work whose process dies is not tried again: it may be the cause.
    fn run(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Done, GpuError> {
        let start = Instant::now();
        let outputs = self.outputs(work, inputs)?;
        let inputs: Arc<[Words]> = inputs.iter().map(|words| words.to_vec()).collect();
        let tenant = self.tenant.clone();
        let asked = |order, given, within| Asked {
            request: Request {
                tenant: tenant.clone(),
                order,
                inputs: inputs.iter().map(Vec::len).collect(),
                within,
            },
            given,
            inputs: inputs.clone(),
            outputs: outputs.clone(),
        };
        let order = match work {
            Work::Kernel(kernel) => Order::Kernel(kernel.clone()),
            Work::Shader(shader) => Order::Shader(shader.clone()),
            Work::Program(program) => Order::Kept(program.id()),
        };
        let mut outcome = self.ask(asked(order, None, within));
        if outcome.is_none()
            && let Work::Program(program) = work
        {
            let (id, plan) = (program.id(), program.plan().clone());
            let left = within.saturating_sub(start.elapsed());
            outcome = self.ask(asked(Order::Program { id, plan }, Some(program.clone()), left));
        }
        let lost = || Err(GpuError::lost("its process says that it was not given the work"));
        let done = outcome.unwrap_or_else(lost)?;
        Ok(Done {
            took: start.elapsed(),
            ..done
        })
    }

    fn recover(&mut self) {
        // Why it does not start is said to the next work.
        let _ = self.process();
    }
}

impl Process {
    fn start(options: &RemoteOptions) -> Result<(Self, DeviceInfo), GpuError> {
        let absent = |what: &str, why: &dyn std::fmt::Display| GpuError::Absent(format!("{what}: {why}"));
        let mut child = Command::new(&options.program)
            .args(&options.arguments)
            .env(RESERVES.0, RESERVES.1)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| absent("the device's process does not start", &error))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(absent("the device's process", &"it has no streams"));
        };
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let (greet, greeting) = channel();
        let talk = std::thread::Builder::new().name("karman-gpu-remote".into());
        let spawned = talk.spawn(move || converse(stdin, stdout, &greet, &asked, &answer));
        let mut process = Self { child, ask, answers };
        spawned.map_err(|error| absent("the device's process", &error))?;
        match greeting.recv_timeout(MOST_START) {
            Ok(Ok(info)) => Ok((process, info)),
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Timeout) => Err(GpuError::Deadline(MOST_START)),
            Err(RecvTimeoutError::Disconnected) => Err(GpuError::Absent(process.ended())),
        }
    }

    /// How the process ended, which it has or is about to.
    fn ended(&mut self) -> String {
        match end(&mut self.child) {
            Some(status) => format!("its process ended with {status}"),
            None => "its process does not end: the driver holds it".into(),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Ends a process. One that is held within its driver ends when that lets it go, which nobody waits for longer than this.
pub(crate) fn end(child: &mut Child) -> Option<ExitStatus> {
    const LONGEST: Duration = Duration::from_secs(1);
    let start = Instant::now();
    // What has ended cannot be killed, and that is fine.
    let _ = child.kill();
    loop {
        match child.try_wait() {
            Ok(None) if start.elapsed() < LONGEST => std::thread::park_timeout(Duration::from_millis(1)),
            ended => return ended.ok().flatten(),
        }
    }
}

/// Writes what is asked and reads what is answered, until either end is gone.
fn converse(
    stdin: ChildStdin,
    stdout: ChildStdout,
    greet: &Sender<Greeting>,
    asked: &Receiver<Asked>,
    answer: &Sender<io::Result<Outcome>>,
) {
    let (mut to, mut from) = (BufWriter::new(stdin), BufReader::new(stdout));
    let Ok(Some(greeting)) = read_line::<Greeting>(&mut from) else {
        return;
    };
    let _ = greet.send(greeting);
    while let Ok(asked) = asked.recv() {
        let constants = asked.given.as_ref().map_or(&[][..], |given| given.constants());
        let answered = write_request(&mut to, &asked.request, constants, &asked.inputs)
            .and_then(|()| read_answer(&mut from, &asked.outputs));
        let broken = answered.is_err();
        if answer.send(answered).is_err() || broken {
            return;
        }
    }
}
