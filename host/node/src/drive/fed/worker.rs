//! The client's side: an order is carried out by the plugin, and what training has changed is encoded.

use super::adapters;
use super::memory::{Key, Memory, Remembered};
use super::spread::{self, Sharer};
use super::sum::{self, Common, Identity, Sums, Taker, Trained};
use super::wire::{self, Answer, Course, Frames, Order, Work};
use futures::FutureExt;
use karman_engine::Plugin;
use karman_engine::learn::{Array, Fitted, Learnt, Lesson, Setting, Share, Training};
use karman_fed::{AssignmentId, Judgement, Update};
use karman_tensor::encode::Feedback;
use karman_types::{CallContext, NodeId, TaskError};
use std::sync::Arc;

/// Carries an order of this driver out. One that was carried out before is answered with what came of it then: training twice would count what
/// an encoding has lost twice, and take as long again.
pub(super) async fn carry_out(
    plugin: &Arc<Plugin>,
    memory: &Arc<Memory>,
    driver: NodeId,
    order: Order,
    context: CallContext,
) -> Result<Answer, TaskError> {
    let key = Memory::key(driver, &order);
    let _one_at_a_time = memory.turn(&key).await;
    let setting = setting(&order);
    match order.work {
        Work::Describe => match learn(plugin, setting, Lesson::Describe, context).await? {
            Learnt::Described(said) => Ok(Answer::Described {
                samples: said.samples,
                label_entropy: said.label_entropy,
                charge: None,
                link: None,
                passes: Vec::new(),
                adapter_rank: None,
            }),
            other => Err(not_asked(&other)),
        },
        Work::Begin { seed } => match learn(plugin, setting, Lesson::Begin { seed }, context).await? {
            Learnt::Begun(model) => {
                let model = memory.apart(move |_| wire::frames_of(&model)).await?;
                Ok(Answer::Begun { model })
            }
            other => Err(not_asked(&other)),
        },
        Work::Evaluate { model } => {
            let model = memory.apart(move |_| wire::arrays(&model)).await?;
            match learn(plugin, setting, Lesson::Evaluate { model }, context).await? {
                Learnt::Judged(said) => Ok(Answer::Judged(Judgement {
                    samples: said.samples,
                    correct: said.correct,
                    loss: said.loss,
                })),
                other => Err(not_asked(&other)),
            }
        }
        Work::Train {
            assignment,
            version,
            course,
            model,
            control,
            adapters,
        } => {
            if memory.has_given(&key).await? {
                return Err(TaskError::denied(
                    "the updates of this run go into secure sums or to its other clients, and nowhere else",
                )
                .with_field("work"));
            }
            let exercise = Arc::new(Exercise {
                of: (assignment, version),
                course,
                model,
                control,
                adapters,
            });
            let update = exercise.answer(plugin, memory, &key, setting, context);
            Ok(Answer::Trained(update.await?))
        }
        Work::Sum { .. } | Work::Spread { .. } => Err(TaskError::denied(
            "clients that one process plays take part in no secure sum, nor have they others to send updates to",
        )
        .with_field("work")),
    }
}

/// Does what a driver asks for a round whose updates go from client to client.
pub(super) async fn share(
    sharer: &Sharer,
    plugin: &Arc<Plugin>,
    order: Order,
    context: CallContext,
) -> Result<Answer, TaskError> {
    let setting = setting(&order);
    let Work::Spread { assignment, step } = order.work else {
        return Err(TaskError::internal("this is no step of such a round"));
    };
    let train = |lesson: spread::Lesson| {
        async move {
            let exercise = Arc::new(Exercise {
                of: (assignment, lesson.version),
                course: lesson.course,
                model: lesson.model,
                control: Frames::new(),
                adapters: Frames::new(),
            });
            let answer = exercise.answer(plugin, &sharer.memory, &sharer.key, setting, context);
            answer.await
        }
        .boxed()
    };
    let answered = spread::carry_out(sharer, assignment, *step, train).await?;
    Ok(Answer::Spread(Box::new(answered)))
}

/// Does what a driver asks for a secure sum.
pub(super) async fn take_part(
    (who, sums): (Arc<dyn Identity>, Arc<Sums>),
    (name, plugin): (&str, &Arc<Plugin>),
    memory: &Arc<Memory>,
    driver: NodeId,
    order: Order,
    context: CallContext,
) -> Result<Answer, TaskError> {
    let key = Memory::key(driver, &order);
    let common = Common::of((name, plugin.package().id), &order);
    let setting = setting(&order);
    let Work::Sum { assignment, step } = order.work else {
        return Err(TaskError::internal("this is no step of a secure sum"));
    };
    let taker = Taker {
        sums,
        memory: memory.clone(),
        who,
        key: key.clone(),
    };
    let key = &key;
    let train = |lesson: sum::Lesson| {
        async move {
            let exercise = Arc::new(Exercise {
                of: (assignment, lesson.version),
                course: lesson.course,
                model: lesson.model,
                control: Frames::new(),
                adapters: Frames::new(),
            });
            let fitted = exercise.fit(plugin, memory, key, setting, context).await?;
            let (plugin, key) = (plugin.clone(), key.clone());
            let keep = move |memory: &Memory| {
                let mut remembered = memory.get(&key)?;
                let (samples, steps, loss) = (fitted.samples, fitted.steps, fitted.loss);
                let (changes, state) = exercise.changes(&plugin, fitted)?;
                remembered.state = state;
                memory.put(&key, remembered)?;
                let numbers = changes.into_iter().flat_map(|array| array.values);
                Ok(Trained {
                    numbers: numbers.collect(),
                    samples,
                    steps,
                    loss,
                })
            };
            memory.apart(keep).await
        }
        .boxed()
    };
    let answered = sum::carry_out(&taker, common, assignment, *step, train).await?;
    Ok(Answer::Sum(Box::new(answered)))
}

/// A training that was ordered.
struct Exercise {
    of: (AssignmentId, u64),
    course: Course,
    model: Arc<Frames>,
    /// Empty where it is zero.
    control: Frames,
    /// Empty where the model itself is trained.
    adapters: Frames,
}

impl Exercise {
    /// The update: the one that was answered before, where there is one.
    async fn answer(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        memory: &Arc<Memory>,
        key: &Key,
        setting: Setting,
        context: CallContext,
    ) -> Result<Box<Update>, TaskError> {
        let mut remembered = memory.recall(key).await?;
        if let Some((of, answer)) = &remembered.answered
            && *of == self.of
        {
            return Ok(answer.clone());
        }
        let fitted = self.fit(plugin, memory, key, setting, context).await?;
        let (exercise, plugin, key) = (self.clone(), plugin.clone(), key.clone());
        let keep = move |memory: &Memory| {
            let update = Box::new(exercise.update(&plugin, fitted, &mut remembered)?);
            remembered.answered = Some((exercise.of, update.clone()));
            memory.put(&key, remembered)?;
            Ok(update)
        };
        memory.apart(keep).await
    }

    async fn fit(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        memory: &Arc<Memory>,
        key: &Key,
        setting: Setting,
        context: CallContext,
    ) -> Result<Fitted, TaskError> {
        let (assignment, version) = self.of;
        tracing::debug!(assignment = assignment.0, version, "training");
        let (exercise, of) = (self.clone(), key.clone());
        let lesson = move |memory: &Memory| {
            Ok(Lesson::Fit {
                model: exercise.given()?,
                training: exercise.training()?,
                state: memory.get(&of)?.state,
            })
        };
        let lesson = memory.apart(lesson).await?;
        let progress = memory.progress(key, assignment, version);
        match plugin.learn(setting, lesson, context, Some(progress)).await?.0 {
            Learnt::Fitted(fitted) => Ok(fitted),
            other => Err(not_asked(&other)),
        }
    }

    /// What the plugin gets to train: the model, and adapters after it where there are some.
    fn given(&self) -> Result<Vec<Array>, TaskError> {
        let mut given = wire::arrays(&self.model)?;
        given.extend(wire::arrays(&self.adapters)?);
        Ok(given)
    }

    fn training(&self) -> Result<Training, TaskError> {
        let course = &self.course;
        Ok(Training {
            version: self.of.1,
            epochs: course.epochs,
            batch: course.batch,
            learning_rate: course.learning_rate,
            most_steps: course.most_steps,
            proximal: course.proximal,
            wants_control: course.rows > 1,
            control: wire::arrays(&self.control)?,
            seed: course.seed,
        })
    }

    /// What training has changed, all rows, and what the plugin wants to have again.
    fn changes(&self, plugin: &Plugin, fitted: Fitted) -> Result<(Vec<Array>, Vec<u8>), TaskError> {
        let before = self.given()?;
        let mut changes = fitted.model;
        same_arrays(plugin, "model", &before, &changes)?;
        for (after, before) in changes.iter_mut().zip(&before) {
            let pairs = after.values.iter_mut().zip(&before.values);
            pairs.for_each(|(after, before)| *after -= before);
        }
        if !self.adapters.is_empty() {
            let of_adapters = adapters::alone(changes, self.model.len());
            let of_adapters = of_adapters.map_err(|what| gave(plugin, &what))?;
            return Ok((of_adapters, fitted.state));
        }
        if self.course.rows > 1 {
            same_arrays(plugin, "control-change", &before, &fitted.control_change)?;
            changes.extend(fitted.control_change);
        }
        Ok((changes, fitted.state))
    }

    /// The same, encoded as the order says.
    fn update(
        &self,
        plugin: &Plugin,
        fitted: Fitted,
        remembered: &mut Remembered,
    ) -> Result<Update, TaskError> {
        let (samples, steps, loss) = (fitted.samples, fitted.steps, fitted.loss);
        let (changes, state) = self.changes(plugin, fitted)?;
        let course = &self.course;
        remembered.feedback.resize_with(changes.len(), Feedback::default);
        let mut frames = Vec::with_capacity(changes.len());
        for (array, feedback) in changes.iter().zip(&mut remembered.feedback) {
            let encoded = feedback.encode(wire::shape_of(array)?, &array.values, course.encoding);
            let encoded = encoded.map_err(|error| gave(plugin, &format!("`{}`: {error}", array.name)))?;
            frames.push(if course.pack { encoded.pack() } else { encoded }.to_bytes());
        }
        remembered.state = state;
        Ok(Update {
            frames,
            samples,
            steps,
            loss,
        })
    }
}

async fn learn(
    plugin: &Arc<Plugin>,
    setting: Setting,
    lesson: Lesson,
    context: CallContext,
) -> Result<Learnt, TaskError> {
    Ok(plugin.learn(setting, lesson, context, None).await?.0)
}

fn not_asked(answer: &Learnt) -> TaskError {
    TaskError::internal(format!("the engine answers what it was not asked: {answer:?}"))
}

fn setting(order: &Order) -> Setting {
    Setting {
        run: order.name.clone(),
        share: order.share.map(|(index, count)| Share { index, count }),
        properties: order.properties.clone(),
    }
}

fn same_arrays(plugin: &Plugin, what: &str, before: &[Array], after: &[Array]) -> Result<(), TaskError> {
    let outline = |array: &Array| (array.name.clone(), array.shape.clone(), array.values.len());
    if before.iter().map(outline).eq(after.iter().map(outline)) {
        return Ok(());
    }
    let wrong = before
        .iter()
        .zip(after)
        .find(|(before, after)| outline(before) != outline(after));
    Err(match wrong {
        Some((before, after)) => gave(
            plugin,
            &format!(
                "`{what}` with `{}` {:?} of {} numbers in place of `{}` {:?}",
                after.name.escape_debug(),
                after.shape,
                after.values.len(),
                before.name,
                before.shape
            ),
        ),
        None => gave(
            plugin,
            &format!(
                "`{what}` with {} arrays in place of {}",
                after.len(),
                before.len()
            ),
        ),
    })
}

fn gave(plugin: &Plugin, what: &str) -> TaskError {
    TaskError::failed(format!("`{}` gave back {what}", plugin.manifest().name)).with_field("model")
}
