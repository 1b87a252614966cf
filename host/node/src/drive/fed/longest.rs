//! How long a client's answer may be: no longer than its order gives it reason to. Whoever lies would else fill the driver's memory.

use super::in_view;
use super::wire::{Frames, Work};
use super::{spread, sum};
use karman_fed::SecureSum;
use karman_fed::swarm::SwarmSettings;

/// What a client says of itself or of its work, and what is around all else, generously: a membership is the longest of it.
const SHORT: usize = 16 << 10;
/// A stretch of time in view, generously.
const PASS: usize = 80;
/// The most that an encoding makes of a number: one of a few that are kept has its place beside it.
const NUMBER: usize = 9;
/// What an array of an update has around its numbers, generously.
const ARRAY: usize = 64;
/// What a client of a secure sum says for another one, generously: sealed shares, and what they hash to.
const SHARE: usize = 256;
/// What it says of another's update that went from client to client, generously: its digest twice, and why it is left out.
const UPDATE: usize = 512;

/// The longest answer to this order in bytes; nothing where nobody can know: a model that is yet to begin may have any size.
pub(super) fn longest_answer(work: &Work) -> Option<u64> {
    let most = match work {
        Work::Begin { .. } => return None,
        Work::Describe => SHORT + in_view::MOST * PASS,
        Work::Evaluate { .. } => SHORT,
        Work::Train {
            course,
            model,
            adapters,
            ..
        } => match adapters.is_empty() {
            true => update(model, course.rows),
            false => update(adapters, 1),
        },
        Work::TrainPrivately { course, model, .. } => update(model, course.rows),
        Work::Sum { step, .. } => match &**step {
            sum::Step::Who | sum::Step::Join { .. } => SHORT,
            sum::Step::Said(_) => SHORT + SecureSum::MOST_CLIENTS * SHARE,
            // Masked numbers have 64 bits, and the weight is one more.
            sum::Step::Train { lesson, .. } => SHORT + 8 * (numbers(&lesson.model) + 1),
        },
        Work::Spread { step, .. } => match &**step {
            spread::Step::Train(_) | spread::Step::Join(_) => SHORT,
            spread::Step::Outcome { .. } => SHORT + SwarmSettings::MOST_CLIENTS * UPDATE,
            spread::Step::Mean { numbers, .. } => SHORT + 4 * numbers,
        },
    };
    Some(most as u64)
}

/// An update of what is trained, in so many rows.
fn update(trained: &Frames, rows: usize) -> usize {
    SHORT + rows * (NUMBER * numbers(trained) + ARRAY * trained.len())
}

/// The numbers of arrays that travel as they are, or a few more: their heads are counted too.
fn numbers(frames: &Frames) -> usize {
    frames.iter().map(|(_, frame)| frame.len() / 4).sum()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{course, frame, judgement};
    use super::super::wire::Answer;
    use super::*;
    use crate::drive::cbor::{read, write};
    use bytes::Bytes;
    use karman_fed::secure::{Members, ToClient, ToServer};
    use karman_fed::{AssignmentId, Run, Update};
    use karman_tensor::encode::{Encoded, Encoding};
    use serde::Serialize;
    use std::sync::Arc;

    const LENGTHS: [usize; 4] = [1, 7, 300, 40_000];

    fn model() -> Frames {
        let array = |length: usize| (format!("array {length}"), frame(&vec![0.5; length]));
        LENGTHS.map(array).to_vec()
    }

    fn training(rows: usize, adapters: Frames) -> Work {
        Work::Train {
            assignment: AssignmentId(1),
            version: 1,
            course: course(Encoding::F32, rows),
            model: Arc::new(model()),
            control: Frames::new(),
            adapters,
        }
    }

    /// An answer is no longer than its order lets it be.
    #[track_caller]
    fn fits(work: &Work, answer: &impl Serialize) {
        let (length, most) = (write(answer).unwrap().len() as u64, longest_answer(work).unwrap());
        assert!(length <= most, "{length} of {most}");
    }

    fn updated(rows: usize, encoding: Encoding) -> Answer {
        // Numbers of all sizes, far from each other.
        let numbers = |length| (0..length).map(|place| (place as f32).sin()).collect::<Vec<_>>();
        let array = |length: usize| {
            // As many channels as there are: each has a scale.
            let encoded = Encoded::encode([length as u32, 1].into(), &numbers(length), encoding);
            encoded.unwrap().to_bytes()
        };
        Answer::Trained(Box::new(Update {
            frames: (0..rows).flat_map(|_| LENGTHS.map(array)).collect(),
            samples: u64::MAX,
            steps: u32::MAX,
            loss: 0.1,
        }))
    }

    #[test]
    fn an_update_fits_in_any_encoding_and_a_much_longer_one_does_not() {
        for rows in [1, 2] {
            let work = training(rows, Frames::new());
            for encoding in [
                Encoding::F32,
                Encoding::F16,
                Encoding::Int8,
                Encoding::TopK(1),
                Encoding::TopK(1000),
            ] {
                fits(&work, &updated(rows, encoding));
            }
            let exact = write(&updated(rows, Encoding::F32)).unwrap().len() as u64;
            assert!(longest_answer(&work).unwrap() < 3 * exact);
        }
        // Of adapters these alone come back.
        let adapters = vec![("a".to_owned(), frame(&[0.5; 8]))];
        assert!(longest_answer(&training(1, adapters)).unwrap() < 20 << 10);
    }

    /// As a client says it that is in view as often as counts.
    #[derive(Serialize)]
    enum Longest {
        Described {
            samples: u64,
            label_entropy: f64,
            charge: f64,
            link: f64,
            passes: Vec<Seen>,
            adapter_rank: u32,
            most_epsilon: f64,
        },
    }

    #[derive(Clone, Serialize)]
    struct Seen {
        begins_ms: u64,
        ends_ms: u64,
        bytes_per_second: f64,
    }

    #[test]
    fn what_a_client_says_of_itself_and_of_a_version_is_short() {
        let seen = Seen {
            begins_ms: u64::MAX,
            ends_ms: u64::MAX,
            bytes_per_second: 0.1,
        };
        let described = Longest::Described {
            samples: u64::MAX,
            label_entropy: 0.1,
            charge: 0.1,
            link: 0.1,
            passes: vec![seen; in_view::MOST],
            adapter_rank: u32::MAX,
            most_epsilon: 0.1,
        };
        assert!(matches!(
            read("answer", &write(&described).unwrap()),
            Ok(Answer::Described { .. })
        ));
        fits(&Work::Describe, &described);
        let evaluate = Work::Evaluate {
            model: Arc::new(model()),
        };
        fits(&evaluate, &Answer::Judged(judgement()));
        for work in [Work::Describe, evaluate] {
            assert!(
                longest_answer(&work).unwrap() <= 100 << 10,
                "whatever the model's size"
            );
        }
        assert_eq!(longest_answer(&Work::Begin { seed: 1 }), None);
    }

    #[test]
    fn a_mean_is_as_long_as_the_model() {
        let length: usize = LENGTHS.iter().sum();
        let spread = |step| Work::Spread {
            assignment: AssignmentId(1),
            step: Box::new(step),
        };
        let mean = spread(spread::Step::Mean {
            name: "learner/1".into(),
            numbers: length,
        });
        let answered = |bytes| Answer::Spread(Box::new(spread::Answered::Mean(Bytes::from(vec![0; bytes]))));
        fits(&mean, &answered(4 * length));
        let longer = write(&answered(8 * length)).unwrap().len() as u64;
        assert!(longest_answer(&mean).unwrap() < longer);
    }

    #[test]
    fn a_masked_vector_is_twice_as_long_as_the_model() {
        let length: usize = LENGTHS.iter().sum();
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let lesson = sum::Lesson {
            version: 1,
            course: course(Encoding::F32, 1),
            model: Arc::new(model()),
            grid: run.grid(),
            weights: run.weights,
            limits: run.limits,
        };
        let train = Work::Sum {
            assignment: AssignmentId(1),
            step: Box::new(sum::Step::Train {
                said: ToClient::Survivors(Members::of(1, [])),
                lesson: Box::new(lesson),
            }),
        };
        let masked = |numbers: usize| {
            Answer::Sum(Box::new(sum::Answered::Trained {
                says: ToServer::Masked(vec![255; 8 * numbers].into()),
                samples: u64::MAX,
                steps: u32::MAX,
                loss: 0.1,
            }))
        };
        fits(&train, &masked(length + 1));
        let longer = write(&masked(2 * length)).unwrap().len() as u64;
        assert!(longest_answer(&train).unwrap() < longer);
    }
}
