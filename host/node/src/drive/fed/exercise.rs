//! A training that was ordered: the plugin trains, and what that has changed is encoded. It is done once, and answered as often as it is asked
//! for.

use super::adapters;
use super::memory::{Key, Memory, Remembered};
use super::noise::{self, Noise};
use super::wire::{self, Course, Frames};
use super::worker::not_asked;
use karman_engine::Plugin;
use karman_engine::learn::{Array, Fitted, Learnt, Lesson, Setting, Training};
use karman_fed::{AssignmentId, Update};
use karman_tensor::encode::Feedback;
use karman_types::{CallContext, TaskError};
use std::sync::Arc;

/// A training that was ordered.
pub(super) struct Exercise {
    pub(super) of: (AssignmentId, u64),
    pub(super) course: Course,
    pub(super) model: Arc<Frames>,
    /// Empty where it is zero.
    pub(super) control: Frames,
    /// Empty where the model itself is trained.
    pub(super) adapters: Frames,
    /// Nothing where the update leaves as it is.
    pub(super) noise: Option<Noise>,
}

impl Exercise {
    /// Of the model itself, with nothing beside it.
    pub(super) fn of_model(of: (AssignmentId, u64), course: Course, model: Arc<Frames>) -> Self {
        Self {
            of,
            course,
            model,
            control: Frames::new(),
            adapters: Frames::new(),
            noise: None,
        }
    }

    /// The update: the one that was answered before, where there is one.
    pub(super) async fn answer(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        memory: &Arc<Memory>,
        key: &Key,
        setting: Setting,
        context: CallContext,
    ) -> Result<Box<Update>, TaskError> {
        let name = plugin.manifest().name.clone();
        let fit = |state| self.fit(plugin, (memory, key), state, setting, context);
        self.once(name, memory, key, fit).await
    }

    /// The same where the plugin of this name trains in this way.
    pub(super) async fn once<F>(
        self: &Arc<Self>,
        name: String,
        memory: &Arc<Memory>,
        key: &Key,
        fit: impl FnOnce(Vec<u8>) -> F,
    ) -> Result<Box<Update>, TaskError>
    where
        F: Future<Output = Result<Fitted, TaskError>>,
    {
        let mut remembered = memory.recall(key).await?;
        let asks_for_noise = self.noise.is_some();
        if let Some((of, answer)) = &remembered.answered
            && *of == self.of
            && remembered.noised == asks_for_noise
        {
            return Ok(answer.clone());
        }
        remembered.goes_on_from(self.course.counted, self.of.0);
        if let Some(noise) = &self.noise {
            // Before the training, which would be for nothing.
            remembered.account = Some(noise.account(remembered.account.take())?);
            if !remembered.noised {
                // What was lost of an update without noise would leave with this one.
                remembered.feedback.clear();
            }
        }
        let fitted = fit(remembered.state.clone()).await?;
        let (exercise, key) = (self.clone(), key.clone());
        let keep = move |memory: &Memory| {
            let update = Box::new(exercise.update(&name, fitted, &mut remembered)?);
            remembered.answered = Some((exercise.of, update.clone()));
            remembered.noised = asks_for_noise;
            memory.put(&key, remembered)?;
            Ok(update)
        };
        memory.apart(keep).await
    }

    /// The training itself, by a plugin that gave this back to have it again.
    pub(super) async fn fit(
        self: &Arc<Self>,
        plugin: &Arc<Plugin>,
        (memory, key): (&Arc<Memory>, &Key),
        state: Vec<u8>,
        setting: Setting,
        context: CallContext,
    ) -> Result<Fitted, TaskError> {
        let (assignment, version) = self.of;
        tracing::debug!(assignment = assignment.0, version, "training");
        let exercise = self.clone();
        let lesson = move |_: &Memory| {
            Ok(Lesson::Fit {
                model: exercise.given()?,
                training: exercise.training()?,
                state: match exercise.course.stateless {
                    true => Vec::new(),
                    false => state,
                },
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
    pub(super) fn changes(&self, name: &str, fitted: Fitted) -> Result<(Vec<Array>, Vec<u8>), TaskError> {
        let before = self.given()?;
        let mut changes = fitted.model;
        same_arrays(name, "model", &before, &changes)?;
        for (after, before) in changes.iter_mut().zip(&before) {
            let pairs = after.values.iter_mut().zip(&before.values);
            pairs.for_each(|(after, before)| *after -= before);
        }
        if !self.adapters.is_empty() {
            let of_adapters = adapters::alone(changes, self.model.len());
            let of_adapters = of_adapters.map_err(|what| gave(name, &what))?;
            return Ok((of_adapters, fitted.state));
        }
        if self.course.rows > 1 {
            same_arrays(name, "control-change", &before, &fitted.control_change)?;
            changes.extend(fitted.control_change);
        }
        Ok((changes, fitted.state))
    }

    /// The same, encoded as the order says.
    fn update(&self, name: &str, fitted: Fitted, remembered: &mut Remembered) -> Result<Update, TaskError> {
        let (samples, steps, loss) = (fitted.samples, fitted.steps, fitted.loss);
        let (mut changes, state) = self.changes(name, fitted)?;
        if let (Some(_), Some(account)) = (&self.noise, &mut remembered.account) {
            noise::add(account, &mut changes)?;
        }
        let course = &self.course;
        remembered.feedback.resize_with(changes.len(), Feedback::default);
        let mut frames = Vec::with_capacity(changes.len());
        for (array, feedback) in changes.iter().zip(&mut remembered.feedback) {
            let encoded = feedback.encode(wire::shape_of(array)?, &array.values, course.encoding);
            let encoded = encoded.map_err(|error| gave(name, &format!("`{}`: {error}", array.name)))?;
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

fn same_arrays(name: &str, what: &str, before: &[Array], after: &[Array]) -> Result<(), TaskError> {
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
            name,
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
            name,
            &format!(
                "`{what}` with {} arrays in place of {}",
                after.len(),
                before.len()
            ),
        ),
    })
}

fn gave(name: &str, what: &str) -> TaskError {
    TaskError::failed(format!("`{name}` gave back {what}")).with_field("model")
}
