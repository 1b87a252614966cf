use super::{Picked, Route, Router, Taker};
use crate::plugin::Strikes;
use crate::plugin::{During, Failed, Failure, Guests, PolicyPlugin, words_of};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What decides where the policy does not.
const RESERVE: Route = Route::Soonest;

/// A policy that a plugin brings, with the default one in reserve: where it fails, that decides, and the decision says so.
///
/// It is asked with what is known of the providers, in an instance of its own each time, so that nothing else counts: a decision
/// that was written down is made again by the plugin's file alone. One that has failed three times in a row is not asked for ten seconds.
pub struct Brought {
    name: String,
    plugin: Option<(PolicyPlugin, Arc<dyn Guests>)>,
    strikes: Strikes,
}

/// An order that a plugin gives, before anybody has looked whether it can be.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Order {
    /// Providers by their places, the one that is tried first first. Those that it does not name come after them, as the default has them.
    pub places: Vec<usize>,
    /// Why, as the end of a sentence.
    pub because: String,
}

/// What a plugin had to do with a decision.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ByPlugin {
    /// By which name the policy was asked for.
    pub name: String,
    /// The plugin; nothing where there was none of that name.
    pub plugin: Option<PolicyPlugin>,
    /// Why it decided as it did, or why the default did.
    pub said: Result<String, Failure>,
}

impl Brought {
    /// The policy of this name. The default decides until there is a [plugin](Self::set_plugin).
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            plugin: None,
            strikes: Strikes::default(),
        }
    }

    /// The plugin that brings it now.
    pub fn plugin(&self) -> Option<&PolicyPlugin> {
        self.plugin.as_ref().map(|(plugin, _)| plugin)
    }

    /// From now on this plugin brings it, or none. What another one did is not held against it.
    pub fn set_plugin(&mut self, plugin: Option<(PolicyPlugin, Arc<dyn Guests>)>) {
        *self = Self {
            plugin,
            ..Self::new(std::mem::take(&mut self.name))
        };
    }

    fn ask(&self, now: Duration, task: &str, takers: &[Taker]) -> Result<Order, Failure> {
        let (plugin, guests) = self.plugin.as_ref().ok_or(Failure::NotHere)?;
        self.strikes.check(now)?;
        asked(plugin, &**guests, task, takers)
    }
}

impl Router for Brought {
    fn name(&self) -> &str {
        &self.name
    }

    fn pick(&mut self, now: Duration, task: &str, takers: Vec<Taker>) -> Picked {
        let ordered = self.ask(now, task, &takers);
        self.strikes.count(now, ordered.as_ref().err());
        let of = (self.name.clone(), self.plugin().cloned());
        picked(of, ordered, task.to_owned(), takers)
    }
}

impl fmt::Debug for Brought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brought")
            .field("name", &self.name)
            .field("plugin", &self.plugin())
            .field("strikes", &self.strikes)
            .finish_non_exhaustive()
    }
}

impl ByPlugin {
    /// Why the default decided, where it did.
    pub fn failed(&self) -> Option<Failed> {
        let failure = self.said.as_ref().err()?.clone();
        let plugin = self.plugin.as_ref();
        Some(Failed {
            plugin: plugin.map_or_else(|| self.name.clone(), ToString::to_string),
            during: During::Choose,
            failure,
        })
    }

    /// The same decision, made once more by the plugin. What was not the plugin's own fault is taken as it was written down.
    ///
    /// # Errors
    /// The plugin that is not here.
    pub(super) fn again<'a>(
        &'a self,
        guests: Option<&dyn Guests>,
        (task, takers): (&str, &[Taker]),
    ) -> Result<Picked, &'a PolicyPlugin> {
        let ordered = match (&self.plugin, &self.said) {
            (_, Err(failure)) if failure.is_of_the_node() => Err(failure.clone()),
            (None, _) => Err(Failure::NotHere),
            (Some(plugin), _) => {
                let guests = guests.filter(|guests| guests.has(plugin)).ok_or(plugin)?;
                asked(plugin, guests, task, takers)
            }
        };
        let of = (self.name.clone(), self.plugin.clone());
        Ok(picked(of, ordered, task.to_owned(), takers.to_vec()))
    }
}

/// The order that a plugin gives, if it can be.
fn asked(plugin: &PolicyPlugin, guests: &dyn Guests, task: &str, takers: &[Taker]) -> Result<Order, Failure> {
    let order = guests.order(plugin, task, takers)?;
    let mut named = vec![false; takers.len()];
    for place in &order.places {
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
    match order.places.is_empty() {
        true => Err(Failure::Nobody),
        false => Ok(order),
    }
}

fn picked(
    (name, plugin): (String, Option<PolicyPlugin>),
    ordered: Result<Order, Failure>,
    task: String,
    takers: Vec<Taker>,
) -> Picked {
    let (mut order, said) = match ordered {
        Ok(Order { places, because }) => (places, Ok(words_of(&because))),
        Err(failure) => (Vec::new(), Err(failure)),
    };
    let mut rest = RESERVE.order(&takers);
    rest.retain(|place| !order.contains(place));
    order.extend(rest);
    Picked {
        route: RESERVE,
        by_plugin: Some(ByPlugin { name, plugin, said }),
        task,
        takers,
        order,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Entry, replay, replay_with};
    use crate::select::{Guest, Task};
    use karman_types::{ByteSize, Digest, NodeId, Slo, TaskId};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Answers the same whatever it is asked, and counts how often that is.
    struct Says(Result<Order, Failure>, AtomicUsize);

    impl Guests for Says {
        fn has(&self, plugin: &PolicyPlugin) -> bool {
            plugin.name == "says"
        }

        fn start(
            &self,
            plugin: &PolicyPlugin,
            _: &[Task],
            _: &Slo,
            _: Option<&[u8]>,
        ) -> Result<Box<dyn Guest>, Failure> {
            Err(Failure::Missing { id: plugin.id })
        }

        fn order(&self, _: &PolicyPlugin, _: &str, _: &[Taker]) -> Result<Order, Failure> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.clone()
        }
    }

    fn plugin() -> PolicyPlugin {
        PolicyPlugin {
            name: "says".into(),
            version: "1.0.0".into(),
            id: Digest::of(b"says"),
            fuel: 1000,
            memory: ByteSize::mib(1),
        }
    }

    fn order(places: &[usize]) -> Result<Order, Failure> {
        Ok(Order {
            places: places.to_vec(),
            because: "so it says\u{202e}".into(),
        })
    }

    fn trap() -> Failure {
        Failure::Trapped {
            trap: "unreachable".into(),
        }
    }

    fn says(said: Result<Order, Failure>) -> (Brought, Arc<Says>) {
        let guests = Arc::new(Says(said, AtomicUsize::new(0)));
        let mut policy = Brought::new("says");
        policy.set_plugin(Some((plugin(), guests.clone())));
        (policy, guests)
    }

    /// Each nearer than the one before, so that the default has them in the order 2, 1, 0.
    fn takers() -> Vec<Taker> {
        let taker = |(name, way): (&str, u64)| Taker {
            round_trip: Some(Duration::from_millis(way)),
            ..Taker::new(NodeId::of_key(name.as_bytes()), 4)
        };
        [("a", 30), ("b", 20), ("c", 10)].map(taker).to_vec()
    }

    fn pick(policy: &mut Brought, second: u64) -> Picked {
        policy.pick(Duration::from_secs(second), "echo", takers())
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
            let (mut policy, guests) = says(order(named));
            let picked = pick(&mut policy, 0);
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
            let (mut policy, guests) = says(said);
            let picked = pick(&mut policy, 0);
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
    fn one_that_fails_again_and_again_is_left_alone_for_a_while() {
        let (mut policy, guests) = says(Err(trap()));
        let asked = || guests.1.load(Ordering::Relaxed);
        for _ in 0..5 {
            pick(&mut policy, 1);
        }
        assert_eq!(asked(), 3);
        let paused = pick(&mut policy, 4);
        let pause = Duration::from_secs(7);
        assert_eq!(failure(&paused), Some(Failure::Paused { failures: 3, pause }));
        // That is of the past, and not for the plugin to say again.
        assert_eq!(paused.again(None), Ok(paused.clone()));
        // It has one more chance, and then waits again.
        pick(&mut policy, 11);
        pick(&mut policy, 12);
        assert_eq!(asked(), 4);
        // Another one begins with none of that.
        policy.set_plugin(Some((plugin(), guests.clone())));
        pick(&mut policy, 12);
        assert_eq!(asked(), 5);
    }

    #[test]
    fn what_the_node_could_not_do_is_not_held_against_it() {
        let (mut policy, guests) = says(Err(Failure::Busy { most: 2 }));
        for _ in 0..9 {
            let picked = pick(&mut policy, 1);
            assert_eq!(picked.again(None), Ok(picked.clone()));
        }
        assert_eq!(guests.1.load(Ordering::Relaxed), 9);
    }

    #[test]
    fn without_a_plugin_the_default_decides_and_says_so() {
        let mut policy = Brought::new("nobody");
        let picked = pick(&mut policy, 0);
        assert_eq!((&picked.order[..], picked.policy()), (&[2, 1, 0][..], "nobody"));
        let failed = picked.failed().unwrap().to_string();
        assert_eq!(
            failed,
            "policy nobody did not decide, the default did: no plugin of this name brings one here"
        );
        assert_eq!(picked.again(None), Ok(picked.clone()));
    }

    #[test]
    fn a_log_of_it_is_made_again_with_its_file() {
        let (mut policy, guests) = says(order(&[1]));
        let picked = pick(&mut policy, 0);
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
        let other: Arc<dyn Guests> = says(Err(trap())).1;
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
        let (mut policy, _) = says(Err(trap()));
        let picked = pick(&mut policy, 0);
        let bytes = cbor4ii::serde::to_vec(Vec::new(), &picked).unwrap();
        assert_eq!(cbor4ii::serde::from_slice::<Picked>(&bytes).unwrap(), picked);
    }
}
