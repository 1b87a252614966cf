//! Calls of `karman:federated/learner`.

use crate::capability::bindings::federated::exports::karman::federated::learner::Guest;
use crate::capability::checkpoint::Progress;
use crate::convert;
use crate::fair::Fair;
use crate::host::Host;
use crate::plugin::{CallReport, Entered, Export, Plugin};
use karman_types::{CallContext, TaskError};
use std::sync::Arc;
use wasmtime::Store;

pub use crate::capability::bindings::federated::karman::federated::types::{
    Array, Description, Fitted, Judged, Setting, Share, Training,
};

/// A request to a federated client.
#[derive(Clone, Debug)]
pub enum Lesson {
    /// What there is to train on.
    Describe,
    /// The model to begin with.
    Begin {
        /// Decides all chance in it.
        seed: u64,
    },
    /// To train.
    Fit {
        /// The model.
        model: Vec<Array>,
        /// How.
        training: Training,
        /// What its last training gave back.
        state: Vec<u8>,
    },
    /// To judge.
    Evaluate {
        /// The model.
        model: Vec<Array>,
    },
}

/// A client's answer to a [`Lesson`]: the case of the same name.
#[derive(Clone, Debug)]
pub enum Learnt {
    /// Its data.
    Described(Description),
    /// The model.
    Begun(Vec<Array>),
    /// What training has come to.
    Fitted(Fitted),
    /// What it thinks of the model.
    Judged(Judged),
}

impl Plugin {
    /// Has a client of federated learning do something, in a fresh instance. What it saves on the way goes to `progress`.
    /// Dropping the future cancels the call.
    ///
    /// # Errors
    /// What the plugin answers, and `invalid` (no client, input too long), `limit`, `deadline`, `failed` (a trap).
    pub async fn learn(
        self: &Arc<Self>,
        setting: Setting,
        lesson: Lesson,
        mut context: CallContext,
        progress: Option<Arc<dyn Progress>>,
    ) -> Result<(Learnt, CallReport), TaskError> {
        if !matches!(self.export, Export::Client(_)) {
            return Err(self.wrong_world("karman:federated/client"));
        }
        self.check_input(lesson.bytes())?;
        let entered = self.enter(&mut context).await?;
        let mut store = self.store(context)?;
        store.data_mut().services.progress = progress;
        let long = store.data().long.clone();
        let workers = self.engine.workers().clone();
        let plugin = self.clone();
        let run = async move { plugin.learn_in_time(entered, store, setting, lesson).await };
        Fair::new(run, long, workers).await
    }

    async fn learn_in_time(
        self: Arc<Self>,
        mut entered: Entered,
        mut store: Store<Host>,
        setting: Setting,
        lesson: Lesson,
    ) -> Result<(Learnt, CallReport), TaskError> {
        let (patience, allowed) = (store.data().patience(), store.data().allowed);
        let learning = self.learn_untimed(&mut store, setting, lesson);
        let ended = tokio::time::timeout(patience, learning).await;
        let ended = ended.unwrap_or_else(|_| Err(self.info.time_over(allowed)));
        let report = entered.end(Some(&store), ended.as_ref().err());
        Ok((ended?, report))
    }

    async fn learn_untimed(
        &self,
        store: &mut Store<Host>,
        setting: Setting,
        lesson: Lesson,
    ) -> Result<Learnt, TaskError> {
        let Export::Client(pre) = &self.export else {
            return Err(self.wrong_world("karman:federated/client"));
        };
        self.stats.instantiated();
        let asked = async {
            let client = pre.instantiate_async(&mut *store).await?;
            ask(client.karman_federated_learner(), &mut *store, setting, lesson).await
        };
        match asked.await {
            Ok(answer) => answer.map_err(|error| store.data().told(error)),
            Err(error) => Err(store.data().explain(&error)),
        }
    }
}

async fn ask(
    guest: &Guest,
    store: &mut Store<Host>,
    setting: Setting,
    lesson: Lesson,
) -> wasmtime::Result<Result<Learnt, TaskError>> {
    let answer = match lesson {
        Lesson::Describe => {
            let answer = guest.call_describe(store, &setting).await?;
            answer.map(Learnt::Described)
        }
        Lesson::Begin { seed } => {
            let answer = guest.call_begin(store, &setting, seed).await?;
            answer.map(Learnt::Begun)
        }
        Lesson::Fit {
            model,
            training,
            state,
        } => {
            let answer = guest.call_fit(store, &setting, &model, &training, &state).await?;
            answer.map(Learnt::Fitted)
        }
        Lesson::Evaluate { model } => {
            let answer = guest.call_evaluate(store, &setting, &model).await?;
            answer.map(Learnt::Judged)
        }
    };
    Ok(answer.map_err(convert::error_from_guest))
}

impl Lesson {
    /// Bytes that go to the guest.
    fn bytes(&self) -> u64 {
        let of = |arrays: &[Array]| {
            arrays
                .iter()
                .map(|array| 4 * array.values.len() as u64)
                .sum::<u64>()
        };
        match self {
            Self::Describe | Self::Begin { .. } => 0,
            Self::Fit {
                model,
                training,
                state,
            } => of(model) + of(&training.control) + state.len() as u64,
            Self::Evaluate { model } => of(model),
        }
    }
}
