//! What a run's driver and its clients say to each other, in CBOR.

use super::in_view::{self, Pass};
use super::{spread, sum};
use bytes::Bytes;
use karman_engine::learn::Array;
use karman_fed::{
    AssignmentId, ClientId, EncodingPolicy, Judgement, Layout, LocalPrivacy, Run, Train, Update,
};
use karman_tensor::Shape;
use karman_tensor::encode::{Encoded, Encoding};
use karman_types::{TaskError, serde_list};
use serde::{Deserialize, Deserializer, Serialize};
use std::sync::Arc;

/// Said of a client whose answer is of another kind than the order.
pub(super) const NOT_ASKED: &str = "it answers what it was not asked";
/// The most arrays of a model.
const MOST_ARRAYS: usize = 4096;
/// The most properties that a driver gives its clients.
const MOST_PROPERTIES: usize = 4096;

/// Which run: drawn when it is begun, so that nobody takes one for another of the same name.
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub(super) struct RunId(pub(super) String);

/// Work for one client.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Order {
    pub(super) run: RunId,
    /// What people call the run.
    pub(super) name: String,
    pub(super) client: ClientId,
    /// The client's share of data that lie at every client: which, of how many.
    pub(super) share: Option<(u32, u32)>,
    #[serde(deserialize_with = "properties")]
    pub(super) properties: Vec<(String, String)>,
    /// Whether a client that says what it has measures its link to the driver too.
    pub(super) by_link: bool,
    pub(super) work: Work,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Work {
    Describe,
    Begin {
        seed: u64,
    },
    Train {
        assignment: AssignmentId,
        version: u64,
        course: Course,
        #[serde(deserialize_with = "a_model")]
        model: Arc<Frames>,
        /// Empty where it is zero.
        #[serde(deserialize_with = "a_model")]
        control: Frames,
        /// What is trained in place of the model; empty where the model is.
        #[serde(deserialize_with = "a_model")]
        adapters: Frames,
    },
    /// To train, and to answer with an update that has noise of its client in it. It is work of its own: a key of [`Work::Train`] could be
    /// read past, and the update sent as it is.
    TrainPrivately {
        assignment: AssignmentId,
        version: u64,
        course: Course,
        noise: LocalPrivacy,
        #[serde(deserialize_with = "a_model")]
        model: Arc<Frames>,
    },
    Evaluate {
        #[serde(deserialize_with = "a_model")]
        model: Arc<Frames>,
    },
    /// A step of the secure sum that the update of an order goes into.
    Sum {
        assignment: AssignmentId,
        step: Box<sum::Step>,
    },
    /// A step of the round in which the update of an order goes from client to client.
    Spread {
        assignment: AssignmentId,
        step: Box<spread::Step>,
    },
}

impl Order {
    /// An order of this run.
    pub(super) fn new(id: &RunId, run: &Run, client: ClientId, work: Work) -> Self {
        let clients = &run.clients;
        let shares = clients.simulated.max(clients.shares);
        // More nodes than shares: those that came later begin again with the first.
        let share = |count: u32| ((client.0 % u64::from(count)) as u32, count);
        Self {
            run: id.clone(),
            name: run.name.clone(),
            client,
            share: (shares > 0).then(|| share(shares)),
            properties: run.properties(),
            by_link: matches!(run.encoding, EncodingPolicy::ByLink(_)),
            work,
        }
    }
}

/// [`Train`] without its arrays.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Course {
    pub(super) epochs: u32,
    pub(super) batch: u32,
    pub(super) learning_rate: f32,
    pub(super) most_steps: Option<u32>,
    pub(super) proximal: f32,
    pub(super) rows: usize,
    pub(super) stateless: bool,
    pub(super) counted: Option<AssignmentId>,
    pub(super) seed: u64,
    pub(super) encoding: Encoding,
    pub(super) pack: bool,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) enum Answer {
    Described {
        samples: u64,
        label_entropy: Option<f64>,
        /// The state of charge of its node, 0 to 1; nothing on mains.
        charge: Option<f64>,
        /// What its link to the driver carries, in bytes a second; nothing where it was not asked, or cannot measure it.
        link: Option<f64>,
        /// When its node and the driver's are in view of each other, where its node plans contacts with that one.
        #[serde(deserialize_with = "in_view::passes")]
        passes: Vec<Pass>,
        /// The largest rank of adapters that its node trains; nothing where it sets no bound.
        adapter_rank: Option<u32>,
        /// The largest ε that its node gives away in a run; nothing where it sets no bound.
        most_epsilon: Option<f64>,
    },
    Begun {
        #[serde(deserialize_with = "a_model")]
        model: Frames,
    },
    Trained(Box<Update>),
    Judged(Judgement),
    Sum(Box<sum::Answered>),
    Spread(Box<spread::Answered>),
}

/// Arrays with their names.
pub(super) type Frames = Vec<(String, Bytes)>;

/// No more of them than a run may have.
fn properties<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, String)>, D::Error> {
    serde_list::at_most(deserializer, MOST_PROPERTIES)
}

/// No more arrays than a model may have: an empty one takes three bytes on its way.
pub(super) fn a_model<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<Frames>,
{
    serde_list::at_most(deserializer, MOST_ARRAYS).map(<T as From<Frames>>::from)
}

impl From<&Train> for Course {
    fn from(train: &Train) -> Self {
        Self {
            epochs: train.epochs,
            batch: train.batch,
            learning_rate: train.learning_rate,
            most_steps: train.most_steps,
            proximal: train.proximal,
            rows: train.rows,
            stateless: train.stateless,
            counted: train.counted,
            seed: train.seed,
            encoding: train.encoding,
            pack: train.pack,
        }
    }
}

/// Numbers in one row as the arrays of this layout.
pub(super) fn frames(layout: &Layout, numbers: &[f32]) -> Result<Frames, TaskError> {
    let mut rest = numbers;
    let each = layout.arrays().iter().map(|array| {
        let count = array.shape.elements().unwrap_or(u64::MAX) as usize;
        let (values, more) = rest
            .split_at_checked(count)
            .ok_or_else(|| TaskError::internal("a model is shorter than its layout"))?;
        rest = more;
        frame(&array.name, array.shape, values)
    });
    each.collect()
}

/// What a plugin gave, as it travels: exactly.
pub(super) fn frames_of(arrays: &[Array]) -> Result<Frames, TaskError> {
    check_count(arrays.len())?;
    let each = arrays
        .iter()
        .map(|array| frame(&array.name, shape_of(array)?, &array.values));
    each.collect()
}

fn check_count(arrays: usize) -> Result<(), TaskError> {
    if arrays <= MOST_ARRAYS {
        return Ok(());
    }
    let says = format!("{arrays} arrays; a model has at most {MOST_ARRAYS}");
    Err(TaskError::limit(says).with_field("model"))
}

/// The shape that an array of a plugin says it has.
pub(super) fn shape_of(array: &Array) -> Result<Shape, TaskError> {
    Shape::new(&array.shape)
        .map_err(|error| TaskError::invalid(format!("`{}`: {error}", array.name.escape_debug())))
}

fn frame(name: &str, shape: Shape, values: &[f32]) -> Result<(String, Bytes), TaskError> {
    let encoded = Encoded::encode(shape, values, Encoding::F32)
        .map_err(|error| TaskError::invalid(format!("`{}`: {error}", name.escape_debug())))?;
    Ok((name.to_owned(), encoded.to_bytes()))
}

/// Arrays as a plugin takes them. They may come from anyone, and take no more memory than their message: a model travels as it
/// is, and what is packed or encoded to fewer bytes is none.
pub(super) fn arrays(frames: &Frames) -> Result<Vec<Array>, TaskError> {
    check_count(frames.len())?;
    let array = |(name, frame): &(String, Bytes)| {
        let refused = |why: &dyn std::fmt::Display| {
            TaskError::invalid(format!("`{}`: {why}", name.escape_debug())).with_field("model")
        };
        let encoded = Encoded::from_bytes(frame).map_err(|error| refused(&error))?;
        if !encoded.is_plain() {
            return Err(refused(
                &"a model travels as plain f32, neither encoded nor packed",
            ));
        }
        Ok(Array {
            name: name.clone(),
            shape: encoded.shape().dims().to_vec(),
            values: encoded.decode().map_err(|error| refused(&error))?,
        })
    };
    frames.iter().map(array).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::cbor::{read, write};

    #[test]
    fn lists_that_no_run_has_are_refused_while_they_are_read() {
        let empty = |count| vec![(String::new(), Bytes::new()); count];
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let order = |work| Order::new(&RunId("0a".into()), &run, ClientId(0), work);
        let evaluate = |count| {
            order(Work::Evaluate {
                model: Arc::new(empty(count)),
            })
        };
        let read_order = |order: &Order| read::<Order>("order", &write(order).unwrap());
        assert!(read_order(&evaluate(MOST_ARRAYS)).is_ok());
        let error = read_order(&evaluate(MOST_ARRAYS + 1)).unwrap_err();
        assert!(error.message.contains("at most 4096"), "{error}");
        let mut many = order(Work::Describe);
        many.properties = vec![(String::new(), String::new()); MOST_PROPERTIES + 1];
        assert!(read_order(&many).unwrap_err().message.contains("at most 4096"));
        let trained = Answer::Trained(Box::new(Update {
            frames: vec![Bytes::new(); Update::MOST_FRAMES + 1],
            ..Update::default()
        }));
        let error = read::<Answer>("answer", &write(&trained).unwrap()).unwrap_err();
        assert!(error.message.contains("at most 8192"), "{error}");
    }

    #[test]
    fn a_model_takes_no_more_memory_than_its_message() {
        let shape = Shape::new(&[1 << 20]).unwrap();
        let zeros = Encoded::encode(shape, &vec![0.0; 1 << 20], Encoding::F32).unwrap();
        assert_eq!(
            arrays(&vec![("w".into(), zeros.to_bytes())]).unwrap()[0]
                .values
                .len(),
            1 << 20
        );
        let bomb = zeros.pack().to_bytes();
        assert!(bomb.len() < 4096);
        let error = arrays(&vec![("w".into(), bomb)]).unwrap_err();
        assert!(error.message.contains("packed"), "{error}");
        let many = vec![("w".into(), Bytes::new()); MOST_ARRAYS + 1];
        assert!(arrays(&many).unwrap_err().message.contains("4097 arrays"));
    }
}
