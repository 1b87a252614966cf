//! The early exits of a model that may answer in its place: which, how accurate each is, and how one is had.

use crate::services::Loaded;
use futures::future::BoxFuture;
use karman_store::ModelExit;
use karman_types::TaskError;

/// Makes the model up to this exit ready, where it was not.
type Load = dyn Fn(u32) -> BoxFuture<'static, Result<Loaded, TaskError>> + Send + Sync;

/// Where a model may stop.
pub(in crate::services) struct Exits {
    early: Vec<(u32, f64)>,
    whole: (u32, f64),
    load: Box<Load>,
}

impl Exits {
    /// Of these exits of a model, from shallow to deep, those that are at least so accurate; nothing said: none but the last, which is
    /// all of it.
    pub(super) fn new(
        exits: &[ModelExit],
        least: Option<f64>,
        load: impl Fn(u32) -> BoxFuture<'static, Result<Loaded, TaskError>> + Send + Sync + 'static,
    ) -> Self {
        let allowed = |exit: &ModelExit| least.is_some_and(|least| exit.accuracy >= least);
        let mut all: Vec<(u32, &ModelExit)> = (1..).zip(exits).collect();
        // One exit is compared with no other: how accurate it is changes nothing.
        let whole = all.pop().map_or((1, 1.0), |(depth, exit)| (depth, exit.accuracy));
        let early = all.into_iter().filter(|(_, exit)| allowed(exit));
        Self {
            early: early.map(|(depth, exit)| (depth, exit.accuracy)).collect(),
            whole,
            load: Box::new(load),
        }
    }

    /// The early ones that may answer, 1 the shallowest, each with its accuracy.
    pub(super) fn early(&self) -> &[(u32, f64)] {
        &self.early
    }

    /// The last, which is all of the model, with its accuracy.
    pub(super) const fn whole(&self) -> (u32, f64) {
        self.whole
    }

    /// The model up to an early exit.
    ///
    /// # Errors
    /// What keeps it from being loaded.
    pub(super) async fn loaded(&self, depth: u32) -> Result<Loaded, TaskError> {
        (self.load)(depth).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::future::ready;

    #[test]
    fn those_answer_early_that_are_accurate_enough() {
        let exits = [0.9667, 0.9889, 0.9933].map(|accuracy| ModelExit {
            output: accuracy.to_string(),
            accuracy,
        });
        let of = |exits: &[ModelExit], least| {
            let load = |_: u32| ready(Err::<Loaded, _>(TaskError::unavailable("nothing is loaded"))).boxed();
            let exits = Exits::new(exits, least, load);
            (exits.early().to_vec(), exits.whole())
        };
        let whole = (3, 0.9933);
        assert_eq!(of(&exits, None), (vec![], whole));
        assert_eq!(of(&exits, Some(0.98)), (vec![(2, 0.9889)], whole));
        assert_eq!(of(&exits, Some(0.9667)).0.len(), 2);
        assert_eq!(of(&exits, Some(1.0)), (vec![], whole));
        assert_eq!(of(&[], Some(0.0)), (vec![], (1, 1.0)));
    }
}
