use super::*;
use crate::device::Cpu;
use crate::kernel::{Fold, Map, Reduce, Step, f32_words, floats};
use crate::program::Call;

#[test]
fn an_answer_of_another_length_is_none() {
    let answer: Result<Option<Answer>, GpuError> = Ok(Some(Answer {
        outputs: vec![1 << 29],
        took: Duration::ZERO,
    }));
    let mut line = Vec::new();
    write_line(&mut line, &answer).unwrap();
    let error = read_answer(&mut line.as_slice(), &[1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn what_is_asked_is_answered() {
    let order = Order::Kernel(Kernel::Reduce(Reduce {
        fold: Fold::Sum,
        rows: 1,
        columns: 3,
    }));
    let inputs = [f32_words(&[1.0, 2.0, 4.0])];
    let mut asked = Vec::new();
    let request = Request {
        tenant: "one".into(),
        order,
        inputs: vec![3],
        within: Duration::from_secs(1),
    };
    write_request(&mut asked, &request, &[], &inputs).unwrap();
    let wrong = Request {
        inputs: vec![2],
        ..request
    };
    write_request(&mut asked, &wrong, &[], &[f32_words(&[1.0, 2.0])]).unwrap();
    let mut answered = Vec::new();
    serve(Ok(Box::new(Cpu::new(1))), asked.as_slice(), &mut answered).unwrap();
    let mut answered = answered.as_slice();
    let greeting: Greeting = read_line(&mut answered).unwrap().unwrap();
    assert_eq!(greeting.unwrap().id, "cpu");
    let done = read_answer(&mut answered, &[1]).unwrap().unwrap();
    assert_eq!(floats(&done.unwrap().outputs[0]), [7.0]);
    assert!(matches!(
        read_answer(&mut answered, &[1]).unwrap(),
        Some(Err(GpuError::Kernel { .. }))
    ));
    assert!(read_answer(&mut answered, &[1]).is_err());
}

/// The processor, which remembers the last program that it was given, and whose.
struct Remembers(Cpu, Option<(String, Arc<Program>)>, String);

impl Device for Remembers {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn set_tenant(&mut self, tenant: &str) {
        tenant.clone_into(&mut self.2);
    }

    fn run(&mut self, work: &Work, inputs: &[&[u32]], within: Duration) -> Result<Done, GpuError> {
        if let Work::Program(program) = work {
            self.1 = Some((self.2.clone(), program.clone()));
        }
        self.0.run(work, inputs, within)
    }

    fn run_kept(
        &mut self,
        program: Digest,
        inputs: &[&[u32]],
        within: Duration,
    ) -> Option<Result<Done, GpuError>> {
        let (owner, kept) = self.1.clone().filter(|(_, kept)| kept.id() == program)?;
        assert_eq!((owner.as_str(), self.2.as_str()), ("one", "one"));
        Some(self.0.run(&Work::Program(kept), inputs, within))
    }
}

#[test]
fn the_constants_of_a_program_travel_once() {
    let plan = Plan {
        constants: vec![2],
        inputs: vec![2],
        calls: vec![Call {
            kernel: Kernel::Map(Map {
                length: 2,
                steps: vec![Step::Add],
            }),
            inputs: vec![1, 0],
        }],
        outputs: vec![2],
    };
    let program = Program::new(plan.clone(), vec![f32_words(&[10.0, 20.0])]).unwrap();
    let id = program.id();
    let (mut asked, none): (Vec<u8>, &[Words]) = (Vec::new(), &[]);
    for (order, constants) in [
        (Order::Kept(id), none),
        (Order::Program { id, plan }, program.constants()),
        (Order::Kept(id), none),
        (Order::Kept(Digest::of(b"another")), none),
    ] {
        let request = Request {
            tenant: "one".into(),
            order,
            inputs: vec![2],
            within: Duration::from_secs(60),
        };
        write_request(&mut asked, &request, constants, &[f32_words(&[1.0, 2.0])]).unwrap();
    }
    let device = Remembers(Cpu::new(1), None, String::new());
    let mut answered = Vec::new();
    serve(Ok(Box::new(device)), asked.as_slice(), &mut answered).unwrap();
    let mut answered = answered.as_slice();
    let greeting: Option<Greeting> = read_line(&mut answered).unwrap();
    assert!(greeting.is_some());
    for runs in [false, true, true, false] {
        let outcome = read_answer(&mut answered, &[2]).unwrap();
        let outputs = outcome.map(|done| floats(&done.unwrap().outputs[0]).to_vec());
        assert_eq!(outputs, runs.then(|| vec![11.0, 22.0]));
    }
}
