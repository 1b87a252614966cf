//! The client's side: an order is carried out by the plugin.

use super::exercise::Exercise;
use super::memory::{Key, Memory};
use super::noise::Noise;
use super::spread::{self, Sharer};
use super::sum::{self, Common, Identity, Sums, Taker, Trained};
use super::wire::{self, Answer, Order, Work};
use crate::config::FederatedConfig;
use futures::FutureExt;
use karman_engine::Plugin;
use karman_engine::learn::{Learnt, Lesson, Setting, Share};
use karman_fed::Judgement;
use karman_types::{CallContext, NodeId, TaskError};
use std::sync::Arc;

/// Carries an order of this driver out. One that was carried out before is answered with what came of it then: training twice would count what
/// an encoding has lost twice, and take as long again.
pub(super) async fn carry_out(
    plugin: &Arc<Plugin>,
    (memory, own): (&Arc<Memory>, &FederatedConfig),
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
                most_epsilon: None,
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
            let exercise = Exercise {
                control,
                adapters,
                ..Exercise::of_model((assignment, version), course, model)
            };
            train(exercise, (plugin, memory), &key, setting, context).await
        }
        Work::TrainPrivately {
            assignment,
            version,
            course,
            noise,
            model,
        } => {
            let exercise = Exercise {
                noise: Some(Noise::new(noise, &course, own)?),
                ..Exercise::of_model((assignment, version), course, model)
            };
            let key = memory.whatever_number(&key);
            train(exercise, (plugin, memory), &key, setting, context).await
        }
        Work::Sum { .. } | Work::Spread { .. } => Err(TaskError::denied(
            "clients that one process plays take part in no secure sum, nor have they others to send updates to",
        )
        .with_field("work")),
    }
}

/// A training whose update goes to the driver.
async fn train(
    exercise: Exercise,
    (plugin, memory): (&Arc<Plugin>, &Arc<Memory>),
    key: &Key,
    setting: Setting,
    context: CallContext,
) -> Result<Answer, TaskError> {
    if memory.has_given(key).await? {
        let says = "the updates of this run go into secure sums or to its other clients, and nowhere else";
        return Err(TaskError::denied(says).with_field("work"));
    }
    let exercise = Arc::new(exercise);
    let update = exercise.answer(plugin, memory, key, setting, context);
    Ok(Answer::Trained(update.await?))
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
            let of = (assignment, lesson.version);
            let exercise = Arc::new(Exercise::of_model(of, lesson.course, lesson.model));
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
            let of = (assignment, lesson.version);
            let exercise = Arc::new(Exercise::of_model(of, lesson.course, lesson.model));
            let state = memory.recall(key).await?.state;
            let fit = exercise.fit(plugin, (memory, key), state, setting, context);
            let fitted = fit.await?;
            let (name, key) = (plugin.manifest().name.clone(), key.clone());
            let keep = move |memory: &Memory| {
                let mut remembered = memory.get(&key)?;
                let (samples, steps, loss) = (fitted.samples, fitted.steps, fitted.loss);
                let (changes, state) = exercise.changes(&name, fitted)?;
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

async fn learn(
    plugin: &Arc<Plugin>,
    setting: Setting,
    lesson: Lesson,
    context: CallContext,
) -> Result<Learnt, TaskError> {
    Ok(plugin.learn(setting, lesson, context, None).await?.0)
}

pub(super) fn not_asked(answer: &Learnt) -> TaskError {
    TaskError::internal(format!("the engine answers what it was not asked: {answer:?}"))
}

fn setting(order: &Order) -> Setting {
    Setting {
        run: order.name.clone(),
        share: order.share.map(|(index, count)| Share { index, count }),
        properties: order.properties.clone(),
    }
}
