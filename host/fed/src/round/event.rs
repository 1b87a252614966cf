use super::{
    Checkpoint, EvaluationReport, Failure, Judgement, Refusal, RoundFailure, SwarmReport, Swarmed, screen,
};
use crate::select::NotEligible;
use crate::{Adapters, ClientId, Limits, Profile, Windows};
use bytes::Bytes;
use karman_tensor::encode::{Encoding, Measured};
use karman_types::serde_list;
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// One piece of work for one client, numbered through the run.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct AssignmentId(pub u64);

/// A write that was asked for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// What happened. A log of these, with their times, replays from a checkpoint.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Event {
    /// A client can be reached, or something about it has changed.
    Here {
        /// Who.
        client: ClientId,
        /// What is known of it.
        profile: Profile,
    },
    /// A client cannot be reached any more: what it was working on is lost.
    Gone {
        /// Who.
        client: ClientId,
    },
    /// When clients are in view has changed, or was not known before: this holds instead.
    Planned {
        /// In the time of the run.
        windows: Windows,
    },
    /// What encodings do on this machine was measured, at the start or since.
    Measured {
        /// Each of them.
        encodings: Vec<Measured>,
    },
    /// A client has trained.
    Updated {
        /// Who.
        client: ClientId,
        /// What it was asked for.
        assignment: AssignmentId,
        /// What came of it.
        update: Box<Update>,
    },
    /// In a run with `[secure-sum]`, the updates of a round have been added up, and nobody has seen them one by one.
    Summed {
        /// What came out.
        sum: Box<Summed>,
    },
    /// What a client declares of its part of a sum or a mean cannot be ([`Part::check`]): its update is not in it.
    Misdeclared {
        /// What it declares.
        part: Part,
    },
    /// In a run with `[swarm]`, the updates of a round have gone from client to client, and their mean is known.
    Swarmed {
        /// What came out.
        swarmed: Box<Swarmed>,
    },
    /// There will be no sum, or no mean, of the updates of these orders.
    Unsummed {
        /// Those whose updates were to be in it.
        assignments: Vec<AssignmentId>,
        /// Whose lie is the reason, where it is one: the run goes on without that client.
        liar: Option<ClientId>,
        /// Why.
        reason: String,
    },
    /// A client has judged the model.
    Judged {
        /// Who.
        client: ClientId,
        /// What it was asked for.
        assignment: AssignmentId,
        /// What it found.
        judgement: Judgement,
    },
    /// A client could not do what it was asked for.
    GaveUp {
        /// Who.
        client: ClientId,
        /// What it was asked for.
        assignment: AssignmentId,
        /// In its words.
        reason: String,
    },
    /// A checkpoint is durable.
    Saved {
        /// Which write.
        ticket: Ticket,
    },
    /// A checkpoint could not be written: the run ends, and goes on from the last durable one when it is started again.
    Unsaved {
        /// Which write.
        ticket: Ticket,
        /// Why.
        reason: String,
    },
    /// Whoever drives the run has been started again, or has lost every link: no answer to an earlier order can come any more.
    /// All of them go out again, under their numbers; a client that has an answer sends it instead of training twice.
    Severed {
        /// As of [`Event::Planned`]. The time of the run stood still meanwhile, that of contacts did not.
        windows: Windows,
    },
    /// Somebody wants the run to end with the version it has.
    Stop,
    /// Time has passed: [`crate::Coordinator::next_timeout`] has come.
    Tick,
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Send an order. After a restart one may go out again under the same number: the client answers with what it has done.
    Send {
        /// To whom.
        client: ClientId,
        /// The order.
        order: Box<Order>,
    },
    /// Tell a client that an order is off.
    Withdraw {
        /// Whom.
        client: ClientId,
        /// Which order.
        assignment: AssignmentId,
    },
    /// Write a checkpoint, replacing the one before, and answer with [`Event::Saved`] once it is durable. Orders wait for that,
    /// so that nobody sees a version that a crash could take back.
    Save {
        /// To answer with.
        ticket: Ticket,
        /// What to write.
        checkpoint: Box<Checkpoint>,
    },
    /// Something a client sent was refused.
    Refused {
        /// Whose.
        client: ClientId,
        /// Why.
        refusal: Refusal,
    },
    /// A client has sent too much that was refused, or has lied in a secure sum: it is not asked any more.
    Excluded {
        /// Who.
        client: ClientId,
    },
    /// A client is not asked though it is there and free. It is told once, and again when the reason is another or was none meanwhile.
    PassedOver {
        /// Who.
        client: ClientId,
        /// Why.
        why: NotEligible,
    },
    /// An order will not be answered.
    Lost {
        /// By whom.
        client: ClientId,
        /// Which order.
        assignment: AssignmentId,
        /// Why.
        loss: Loss,
    },
    /// A round has made a version.
    Closed(Box<RoundReport>),
    /// A round has made none; the model is as before.
    Failed {
        /// The round, counted from 1.
        round: u64,
        /// Why.
        failure: RoundFailure,
    },
    /// Clients have judged a version.
    Evaluated(EvaluationReport),
    /// The run is over.
    Finished {
        /// The last version, which is durable.
        version: u64,
        /// Why it did not get where it should, if it did not.
        failure: Option<Failure>,
    },
}

/// What goes to a client.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// To answer with.
    pub assignment: AssignmentId,
    /// The version of the model.
    pub version: u64,
    /// The model.
    pub model: Arc<[f32]>,
    /// The time it has.
    pub time: Duration,
    /// What to do with it.
    pub work: Work,
}

/// What a client is asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// To train.
    Train(Train),
    /// To judge the model on data that it holds back.
    Evaluate,
}

/// How a client is to train.
#[derive(Clone, Debug, PartialEq)]
pub struct Train {
    /// Passes over its data.
    pub epochs: u32,
    /// Samples of a step.
    pub batch: u32,
    /// The size of a step.
    pub learning_rate: f32,
    /// No more steps than this, where it is known to be slow.
    pub most_steps: Option<u32>,
    /// Adds `proximal/2 ‖w − w_t‖²` to the loss.
    pub proximal: f32,
    /// Rows of the update: with 2 the second is the change of its control variate.
    pub rows: usize,
    /// The server's control variate; nothing where it is zero.
    pub control: Option<Arc<[f32]>>,
    /// What it trains in place of the model, which then stays as it is; nothing where it trains the model itself.
    pub adapters: Option<Adapters>,
    /// Whether it trains by what is here and its data alone, and by nothing that it kept of earlier rounds: in a private run whose clients
    /// are chosen, who took part in them depends on who else was there.
    pub stateless: bool,
    /// The last of its answers that is in a version, or is gathered for one: with any later one it has to forget what it kept, for nobody
    /// else knows of it.
    pub counted: Option<AssignmentId>,
    /// Decides the order of its samples.
    pub seed: u64,
    /// How the update should travel.
    pub encoding: Encoding,
    /// Whether zstd should pack it.
    pub pack: bool,
}

/// What a client's training came to.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Update {
    /// One frame ([`karman_tensor::encode::Encoded`]) for each array of the layout: the numbers after training minus those before; with two
    /// rows all arrays of the second follow. Of [`Adapters`] these alone.
    #[serde(deserialize_with = "frames")]
    pub frames: Vec<Bytes>,
    /// Samples that it trained on.
    pub samples: u64,
    /// Steps that it took.
    pub steps: u32,
    /// The mean loss on the way.
    pub loss: f32,
}

/// No more of them than a model may have, in two rows: an empty one takes a byte on its way.
fn frames<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Bytes>, D::Error> {
    serde_list::at_most(deserializer, Update::MOST_FRAMES)
}

impl Update {
    /// The most frames that are read: two rows of 4,096 arrays.
    pub const MOST_FRAMES: usize = 2 * 4096;
}

/// The sum of a round's updates.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Summed {
    /// Whose updates are in it.
    pub parts: Vec<Part>,
    /// The sum in steps of the run's grid ([`crate::Run::grid`]), each update multiplied by its weight; as long as the model.
    pub elements: Vec<i64>,
    /// The sum of the weights, which was as secret as the updates.
    pub weight: u64,
    /// Bytes that clients sent for it.
    pub bytes: u64,
}

/// What a client says in the open of its part of a sum, or of a mean.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Part {
    /// Whose it is.
    pub client: ClientId,
    /// What it answers.
    pub assignment: AssignmentId,
    /// Samples that it trained on.
    pub samples: u64,
    /// Steps that it took.
    pub steps: u32,
    /// The mean loss on the way.
    pub loss: f32,
    /// From its order to train until its masked update was here, or it said that it has trained.
    pub took: Duration,
}

impl Part {
    /// Whether there can be such a training. It is asked before its update goes into a sum, for nothing can be taken out of that.
    ///
    /// # Errors
    /// What cannot be.
    pub fn check(&self, limits: &Limits) -> Result<(), Refusal> {
        screen::declared(self.samples, self.steps, self.loss, limits)
    }
}

/// Why an order will not be answered.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Loss {
    /// The client cannot be reached any more.
    Gone,
    /// Its time is over.
    Late,
    /// It said so.
    GaveUp(String),
    /// Its update is not in the mean of the others.
    LeftOut(String),
    /// What it sent was refused.
    Refused,
}

/// A version that a round has made.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct RoundReport {
    /// The round, counted from 1, failed ones included.
    pub round: u64,
    /// The version.
    pub version: u64,
    /// The clients whose updates are in it, in their order.
    pub clients: Vec<ClientId>,
    /// Orders that were not answered.
    pub lost: u32,
    /// Mean loss of the training, by weight; nothing where nobody trained, which happens where chance draws the clients.
    pub loss: Option<f64>,
    /// Mean staleness of the updates.
    pub staleness: f64,
    /// Bytes of updates received, refused ones included.
    pub bytes_up: u64,
    /// Bytes of models sent, as `f32`.
    pub bytes_down: u64,
    /// In a private run, the ε that is spent up to this version: [`super::Status::spent`].
    pub epsilon: Option<f64>,
    /// How its updates went from client to client, where they did.
    pub swarm: Option<SwarmReport>,
    /// The greatest rank by which a matrix of `[low-rank]` has changed.
    pub rank: Option<u32>,
    /// From its opening to its closing.
    pub time: Duration,
}
