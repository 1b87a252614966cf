use super::{Picked, Route, Taker};
use crate::plugin::{ByPlugin, Decided, Failure, Guests, PolicyPlugin};

/// An order that a plugin gives, before anybody has looked whether it can be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Order {
    /// Providers by their places, the one that is tried first first. Those that it does not name come after them, as the default has them.
    pub places: Vec<usize>,
    /// Why, as the end of a sentence.
    pub because: String,
}

/// By a plugin that routes. What it does not say, [`Route::default`] does.
impl Decided for Picked {
    /// The task, and its providers.
    type Known = (String, Vec<Taker>);
    /// The places of providers, each named once.
    type Answer = Vec<usize>;

    fn ask(
        (task, takers): &Self::Known,
        plugin: &PolicyPlugin,
        guests: &dyn Guests,
    ) -> Result<(Vec<usize>, String), Failure> {
        let Order { places, because } = guests.order(plugin, task, takers)?;
        check(&places, takers.len())?;
        Ok((places, because))
    }

    fn made((task, takers): Self::Known, answer: Option<Vec<usize>>, by_plugin: ByPlugin) -> Self {
        let route = Route::default();
        let mut order = answer.unwrap_or_default();
        let mut rest = route.order(&takers);
        rest.retain(|place| !order.contains(place));
        order.extend(rest);
        Self {
            route,
            by_plugin: Some(by_plugin),
            task,
            takers,
            order,
        }
    }
}

/// Whether providers can be tried in this order.
fn check(places: &[usize], takers: usize) -> Result<(), Failure> {
    let mut named = vec![false; takers];
    for place in places {
        let problem = match named.get_mut(*place) {
            None => "is none of the providers",
            Some(true) => "it had named before",
            Some(first) => {
                *first = true;
                continue;
            }
        };
        return Err(Failure::Answer {
            candidate: *place,
            problem: problem.into(),
        });
    }
    match places.is_empty() {
        true => Err(Failure::Nobody),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Entry, replay, replay_with};
    use crate::plugin::ByName;
    use crate::plugin::testing::{Says, plugin, trap};
    use karman_types::{NodeId, TaskId};
    use std::sync::Arc;
    use std::time::Duration;

    fn order(places: &[usize]) -> Result<Order, Failure> {
        Ok(Order {
            places: places.to_vec(),
            because: "so it says".into(),
        })
    }

    /// Each nearer than the one before, so that the default has them in the order 2, 1, 0.
    fn takers() -> Vec<Taker> {
        let taker = |(name, way): (&str, u64)| Taker {
            round_trip: Some(Duration::from_millis(way)),
            ..Taker::new(NodeId::of_key(name.as_bytes()), 4)
        };
        [("a", 30), ("b", 20), ("c", 10)].map(taker).to_vec()
    }

    fn pick(policy: &mut ByName) -> Picked {
        policy.decide(Duration::ZERO, ("echo".into(), takers()))
    }

    fn failure(picked: &Picked) -> Option<Failure> {
        picked.failed().map(|failed| failed.failure)
    }

    #[test]
    fn whom_it_does_not_name_comes_after_those_that_it_names() {
        for (named, order_of_all) in [
            (&[0][..], [0, 2, 1]),
            (&[1, 0], [1, 0, 2]),
            (&[0, 1, 2], [0, 1, 2]),
        ] {
            let guests = Says::order(order(named));
            let picked = pick(&mut guests.policy());
            assert_eq!((&picked.order[..], failure(&picked)), (&order_of_all[..], None));
            assert_eq!(picked.policy(), "says");
            let why = picked.why().to_string();
            assert!(why.ends_with("because so it says"), "{why}");
            // The plugin's file is all that it takes to decide the same again.
            assert_eq!(picked.again(Some(&*guests)), Ok(picked.clone()));
            assert_eq!(picked.again(None), Err(&plugin()));
        }
    }

    #[test]
    fn what_cannot_be_the_default_decides() {
        let answer = |candidate, problem: &str| Failure::Answer {
            candidate,
            problem: problem.into(),
        };
        for (said, why) in [
            (order(&[3]), answer(3, "is none of the providers")),
            (
                order(&[1, usize::MAX]),
                answer(usize::MAX, "is none of the providers"),
            ),
            (order(&[1, 2, 1]), answer(1, "it had named before")),
            (order(&[]), Failure::Nobody),
            (Err(trap()), trap()),
        ] {
            let guests = Says::order(said);
            let picked = pick(&mut guests.policy());
            assert_eq!((&picked.order[..], failure(&picked)), (&[2, 1, 0][..], Some(why)));
            let told = picked.told(picked.takers[2].node);
            assert!(
                told.contains("; policy says 1.0.0 did not decide, the default did: it "),
                "{told}"
            );
            assert_eq!(picked.again(Some(&*guests)), Ok(picked.clone()));
        }
    }

    #[test]
    fn a_log_of_it_is_made_again_with_its_file() {
        let guests = Says::order(order(&[1]));
        let picked = pick(&mut guests.policy());
        let log = [Entry::picked(1, TaskId::from_parts(1, 1), picked)];
        assert_eq!(log[0].plugin(), Some(&plugin()));
        let without = replay(&log);
        let absent = &without.without_plugin[0];
        assert!(!without.holds());
        assert_eq!((absent.plugin.as_str(), absent.decisions), ("says 1.0.0", 1));
        let guests: Arc<dyn Guests> = guests;
        let replayed = replay_with(&log, &guests);
        assert_eq!((replayed.same, replayed.holds()), (1, true));
        // Another file that passes for it is found out.
        let other: Arc<dyn Guests> = Says::order(Err(trap()));
        let replayed = replay_with(&log, &other);
        let repicked = &replayed.repicked[0];
        assert_eq!(
            (&repicked.logged[..], &repicked.now[..]),
            (&[1, 2, 0][..], &[2, 1, 0][..])
        );
        let said = ["so it says", "it trapped: unreachable"].map(str::to_owned);
        assert_eq!(repicked.said, Some(said));
    }

    #[test]
    fn what_was_written_down_before_there_were_plugins_reads() {
        let picked = Picked::by(Route::Soonest, "echo", takers());
        let written = serde_json::to_value(&picked).unwrap();
        assert_eq!(written.get("by_plugin"), None);
        assert_eq!(serde_json::from_value::<Picked>(written).unwrap(), picked);
        let guests = Says::order(Err(trap()));
        let picked = pick(&mut guests.policy());
        let bytes = cbor4ii::serde::to_vec(Vec::new(), &picked).unwrap();
        assert_eq!(cbor4ii::serde::from_slice::<Picked>(&bytes).unwrap(), picked);
    }
}
