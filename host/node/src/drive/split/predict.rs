//! How long the layers of a model would take here that were never timed: by a regression over those of other models that were, with the
//! same back-end.

use karman_infer::graph::Graph;
use karman_infer::profile::{Profile, ProfileOptions, Regression};
use karman_store::Store;
use karman_types::TaskError;

/// Before the back-end, in the name of the record of the models that were timed with it.
const TIMED: &str = "timed";
/// Models that a prediction is made from: those that were timed last.
const MOST: usize = 16;

/// A profile was measured with this back-end and is kept under this name: others may be predicted from it. Those that went with their
/// models make room.
pub(super) fn remember(store: &Store, backend: &str, name: &str) -> Result<(), TaskError> {
    let kept = store.profiles().names("")?;
    let change = |names: &mut Vec<String>| {
        names.retain(|known| known != name && kept.contains(known));
        names.push(name.to_owned());
        let over = names.len().saturating_sub(MOST);
        names.drain(..over);
    };
    store
        .profiles()
        .change(&format!("{TIMED}/{backend}"), change)
        .map_err(TaskError::from)
}

/// What the model would take; nothing while no other one was timed. Every time in it says that it is predicted.
pub(super) fn predict(store: &Store, backend: &str, graph: &Graph) -> Option<Profile> {
    let names: Vec<String> = store.profiles().get(&format!("{TIMED}/{backend}")).ok()??;
    let profile = |name: &String| store.profiles().get::<Profile>(name).ok()?;
    let timed: Vec<Profile> = names.iter().filter_map(profile).collect();
    let regression = Regression::fit(&timed.iter().collect::<Vec<_>>()).ok()?;
    Some(regression.predict(graph, ProfileOptions::default().batch))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use karman_infer::zoo::{Architecture, Variant};
    use karman_infer::{LoadOptions, ModelLimits, Tract};

    fn graph(architecture: Architecture) -> Graph {
        let variant = Variant {
            input: 64,
            narrower: 16,
            classes: 10,
            ..Variant::default()
        };
        Graph::read(architecture.generate(&variant), &ModelLimits::default()).unwrap()
    }

    #[test]
    fn a_model_that_was_never_timed_is_predicted_from_those_that_were() {
        let folder = tempfile::tempdir().unwrap();
        let store = Home::new(folder.path()).store().unwrap();
        let (seen, new) = (graph(Architecture::Vgg16), graph(Architecture::AlexNet));
        assert!(predict(&store, "tract-0/1", &new).is_none());
        let quick = ProfileOptions {
            warm_up: 0,
            runs: 1,
            ..ProfileOptions::default()
        };
        let measured = Profile::measure(&seen, &Tract, &LoadOptions::default(), &quick).unwrap();
        store.profiles().put("vgg", &measured).unwrap();
        for _ in 0..2 {
            remember(&store, "tract-0/1", "vgg").unwrap();
        }
        let predicted = predict(&store, "tract-0/1", &new).unwrap();
        assert_eq!(predicted.model, new.digest());
        assert!(predicted.whole.seconds > 0.0 && !predicted.is_measured());
        // Times of another back-end say nothing.
        assert!(predict(&store, "onnxruntime-1/1", &new).is_none());
        // No more are remembered than may be.
        let times = |n: usize| n.to_string();
        for n in 0..2 * MOST {
            store.profiles().put(&times(n), &measured).unwrap();
            remember(&store, "tract-0/1", &times(n)).unwrap();
        }
        let names = || -> Vec<String> { store.profiles().get("timed/tract-0/1").unwrap().unwrap() };
        assert_eq!(names().len(), MOST);
        // Those of models that are gone make room.
        store
            .profiles()
            .remove(&[&times(MOST), &times(MOST + 1)])
            .unwrap();
        remember(&store, "tract-0/1", "vgg").unwrap();
        assert_eq!(names().len(), MOST - 1);
    }
}
