//! What a driver and its clients say to each other over a round whose updates go from client to client.

use crate::drive::fed::wire::{self, Course, Frames};
use bytes::Bytes;
use karman_fed::Reached;
use karman_fed::strategy::WeightPolicy;
use karman_fed::swarm::{Client, Layout, Link, MeanRule, SwarmSettings};
use karman_types::{Digest, serde_list};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// What a client is asked.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Step {
    /// To train, and to keep what that has changed.
    Train(Lesson),
    /// To wait for the round of this name, and bring that into it.
    Join(Joining),
    /// What it has come to, once the round is over.
    Outcome { name: String },
    /// The mean that it has come to.
    Mean {
        name: String,
        /// How many there are, for its driver alone: no more are taken in.
        #[serde(skip)]
        numbers: usize,
    },
}

/// A training whose update goes from client to client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) struct Lesson {
    pub(in crate::drive::fed) version: u64,
    pub(in crate::drive::fed) course: Course,
    #[serde(deserialize_with = "wire::a_model")]
    pub(in crate::drive::fed) model: Arc<Frames>,
}

/// A round that is to be waited for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) struct Joining {
    pub(super) name: String,
    /// What it was trained from.
    pub(super) version: u64,
    /// How many take part at most.
    pub(super) clients: u32,
    pub(super) layout: Layout,
    pub(super) weights: WeightPolicy,
    pub(super) rule: MeanRule,
    pub(super) link: Link,
    /// How long there will be an outcome for.
    pub(super) within_ms: u64,
}

/// What it answers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) enum Answered {
    /// What it says of its training in the open.
    Trained {
        samples: u64,
        steps: u32,
        loss: f32,
    },
    Waits,
    Came(Box<Came>),
    /// The numbers, little-endian.
    Mean(Bytes),
}

/// What the round has come to for a client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(in crate::drive::fed) struct Came {
    pub(super) reached: Reached,
    /// Updates that are no numbers to take a mean of, and why.
    #[serde(deserialize_with = "left_out")]
    pub(super) left_out: Vec<(Digest, String)>,
    /// Pieces of its own that it sent outside of any cover.
    pub(super) unprotected: u32,
    /// The clients that have sent it what is no piece of the round, by their numbers there.
    #[serde(deserialize_with = "clients")]
    pub(super) altered: Vec<Client>,
}

/// No more of them than a round has clients.
fn left_out<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(Digest, String)>, D::Error> {
    serde_list::at_most(deserializer, SwarmSettings::MOST_CLIENTS)
}

/// The same.
fn clients<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Client>, D::Error> {
    serde_list::at_most(deserializer, SwarmSettings::MOST_CLIENTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::cbor::write;
    use crate::drive::fed::longest::longest_answer;
    use crate::drive::fed::outside::{read_fed_answer, read_fed_order};
    use crate::drive::fed::testing::frame;
    use crate::drive::fed::wire::{Answer, Order, RunId, Work};
    use karman_fed::{AssignmentId, ClientId, Run};
    use karman_tensor::encode::Encoding;

    fn run() -> Run {
        Run::from_toml("name = 'x'\nrounds = 1\n[swarm]\n").unwrap()
    }

    fn order(step: Step) -> Bytes {
        let step = Box::new(step);
        let assignment = AssignmentId(7);
        let work = Work::Spread { assignment, step };
        write(&Order::new(&RunId("0a".into()), &run(), ClientId(3), work)).unwrap()
    }

    fn training(model: Frames) -> Step {
        Step::Train(Lesson {
            version: 1,
            course: Course {
                epochs: 1,
                batch: 8,
                learning_rate: 0.1,
                most_steps: Some(4),
                proximal: 0.0,
                rows: 1,
                stateless: false,
                counted: None,
                seed: 5,
                encoding: Encoding::F32,
                pack: false,
            },
            model: Arc::new(model),
        })
    }

    fn came(updates: usize, left_out: usize, altered: usize) -> Bytes {
        let one = Digest::of(b"one");
        let came = Came {
            reached: Reached {
                mean: one,
                updates: vec![one; updates],
            },
            left_out: vec![(one, "no numbers".into()); left_out],
            unprotected: 2,
            altered: vec![7; altered],
        };
        write(&Answer::Spread(Box::new(Answered::Came(Box::new(came))))).unwrap()
    }

    #[test]
    fn what_is_said_is_read_as_it_was_written() {
        let name = || String::from("learner/1");
        let joining = Joining {
            name: name(),
            version: 1,
            clients: 5,
            layout: Layout { chunk: 4, chunks: 3 },
            weights: WeightPolicy::Capped(9),
            rule: MeanRule {
                grid: run().grid(),
                magnitude: 10.0,
            },
            link: Link { up: 1, down: 4 },
            within_ms: 1000,
        };
        for step in [
            training(vec![("weight".into(), frame(&[0.5, -1.0]))]),
            Step::Join(joining),
            Step::Outcome { name: name() },
            Step::Mean {
                name: name(),
                numbers: 0,
            },
        ] {
            let written = order(step);
            assert_eq!(read_fed_order(&written), Ok(written));
        }
        let trained = Answered::Trained {
            samples: 30,
            steps: 4,
            loss: 0.5,
        };
        for answered in [trained, Answered::Waits, Answered::Mean(Bytes::from(vec![1; 8]))] {
            let written = write(&Answer::Spread(Box::new(answered))).unwrap();
            assert_eq!(read_fed_answer(&written), Ok(written));
        }
        assert_eq!(read_fed_answer(&came(3, 1, 1)), Ok(came(3, 1, 1)));
    }

    #[test]
    fn what_no_round_has_is_refused_while_it_is_read() {
        let most = SwarmSettings::MOST_CLIENTS;
        assert!(read_fed_answer(&came(most, most, most)).is_ok());
        let outcome = Work::Spread {
            assignment: AssignmentId(7),
            step: Box::new(Step::Outcome { name: "x".into() }),
        };
        assert!(came(most, most, most).len() as u64 <= longest_answer(&outcome).unwrap());
        for bytes in [came(most + 1, 0, 0), came(0, most + 1, 0), came(0, 0, most + 1)] {
            let error = read_fed_answer(&bytes).unwrap_err();
            assert!(error.message.contains("at most 4096"), "{error}");
            assert_eq!(error.field.as_deref(), Some("answer"));
        }
        let garbage = order(training(vec![("weight".into(), Bytes::from_static(b"no array"))]));
        assert_eq!(
            read_fed_order(&garbage).unwrap_err().field.as_deref(),
            Some("model")
        );
        // An order is no answer, nor what is cut off.
        let whole = order(Step::Mean {
            name: "x".into(),
            numbers: 0,
        });
        assert!(read_fed_answer(&whole).is_err());
        assert!(read_fed_order(&whole[..whole.len() - 1]).is_err());
    }
}
