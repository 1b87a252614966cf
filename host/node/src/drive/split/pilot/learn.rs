//! What requests tell of nodes, links and tensors.

use super::Pilot;
use crate::drive::split::encodings::least_share;
use crate::drive::split::plan::Route;
use crate::drive::split::policy::Policy;
use crate::drive::split::wire::Leg;
use crate::services::blocking;
use karman_engine::capability::nn::Tensors;
use karman_infer::profile::EdgeProfile;
use karman_sched::partition::{Event, Replanner};
use karman_tensor::Tensor;
use karman_types::NodeId;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Pilot {
    /// What a request tells goes into the plan; where too many wait with theirs, only what no later one would tell.
    pub(super) async fn learn_from(
        self: Arc<Self>,
        route: Arc<Route>,
        mut legs: Vec<Leg>,
        inputs: Option<Tensors>,
    ) {
        let place = self.planner.place();
        if place.is_none() {
            let model = &self.planned.model.name;
            tracing::debug!(
                model,
                "the times of a request are not learnt from: too many wait for that"
            );
            legs.retain(is_failure);
        }
        if !legs.is_empty() {
            self.think(move |pilot, replanner| pilot.learn(replanner, &route, &legs))
                .await;
        }
        if let Some(inputs) = inputs.filter(|_| place.is_some()) {
            self.learn_inputs(inputs).await;
        }
    }

    /// What a request took says how fast nodes and links are now.
    fn learn(self: &Arc<Self>, replanner: &mut Replanner<Policy>, route: &Route, legs: &[Leg]) {
        let (mut at, mut before) = (0, None);
        // What the last one has made comes back over all links.
        let results = legs.last().map_or(0, |leg| leg.bytes_out);
        if came_back(legs, self.node_of(0)) {
            self.learn_results(replanner, results);
        }
        for leg in legs {
            let Some(tier) = self.tier_of(leg.node) else {
                continue;
            };
            let layers: Vec<usize> = (0..route.cut.stage_of_layer.len())
                .filter(|layer| route.cut.stage_of_layer[*layer] == leg.stage)
                .collect();
            if leg.overtaken && tier == at {
                // It began here for nothing.
                continue;
            }
            if leg.overtaken {
                if timed_out(leg, route.spare.load(Ordering::Relaxed)) {
                    self.late.lock().miss(tier, Instant::now());
                }
                // Where others come after it, it may have waited for them.
                let is_last = route.tiers.len() == usize::from(leg.stage) + 1;
                let unanswered = Event::Unanswered {
                    from: at,
                    to: tier,
                    bytes: leg.bytes_in,
                    layers: if is_last { layers } else { Vec::new() },
                    ms: leg.transfer_us as f64 / 1e3,
                };
                self.tell(replanner, unanswered);
                continue;
            }
            if is_failure(leg) {
                self.lose(replanner, tier);
                continue;
            }
            self.lost.lock().works(tier);
            self.late.lock().works(tier);
            if !layers.is_empty() {
                let ms = leg.compute_us as f64 / 1e3;
                self.tell(replanner, Event::Computed { tier, layers, ms });
            }
            if let Some(before) = before.replace(leg).filter(|_| tier != at) {
                self.learn_sizes(replanner, route, before, leg);
                let answered = Event::Answered {
                    from: at,
                    to: tier,
                    bytes: leg.bytes_in,
                    answer: results,
                    ms: leg.transfer_us as f64 / 1e3,
                };
                self.tell(replanner, answered);
            }
            at = tier;
        }
    }

    /// What travelled from one leg to the next says in how many bytes those tensors do.
    fn learn_sizes(self: &Arc<Self>, replanner: &mut Replanner<Policy>, route: &Route, from: &Leg, to: &Leg) {
        // On a fast link they go as they are, and their size does not matter.
        if to.encoding.is_none() || from.bytes_out == 0 {
            return;
        }
        let share = to.bytes_in as f64 / from.bytes_out as f64;
        let stage_of = |layer: &usize| route.cut.stage_of_layer.get(*layer).copied();
        for (tensor, edge) in self.edges().iter().enumerate() {
            let made = edge
                .from
                .as_ref()
                .is_none_or(|layer| stage_of(layer) <= Some(from.stage));
            let wanted = edge.to.iter().any(|layer| stage_of(layer) > Some(from.stage));
            if made && wanted {
                self.tell_size(replanner, tensor, share);
            }
        }
    }

    /// In how many bytes the results came back. On a fast link they come as they are, and their size does not matter.
    fn learn_results(self: &Arc<Self>, replanner: &mut Replanner<Policy>, bytes: u64) {
        let results = || self.edges().iter().enumerate().filter(|(_, edge)| edge.is_output);
        let whole: u64 = results().map(|(_, edge)| edge.bytes).sum();
        if bytes >= whole {
            return;
        }
        for (tensor, _) in results() {
            self.tell_size(replanner, tensor, bytes as f64 / whole as f64);
        }
    }

    /// In how many bytes the inputs of a request travel, also where they stay here by the plan of now.
    async fn learn_inputs(self: &Arc<Self>, inputs: Tensors) {
        let max_error = self.planned.max_error;
        let shares = move || {
            let share = |(name, input): (String, Tensor)| (name, least_share(&input, max_error));
            Ok(inputs.into_iter().map(share).collect::<Vec<_>>())
        };
        let shares = blocking(shares).await.unwrap_or_default();
        let learn = move |pilot: &Arc<Self>, replanner: &mut Replanner<Policy>| {
            for (name, share) in shares {
                let of_name = |edge: &EdgeProfile| edge.from.is_none() && edge.name == name;
                if let Some(tensor) = pilot.edges().iter().position(of_name) {
                    pilot.tell_size(replanner, tensor, share);
                }
            }
        };
        self.think(learn).await;
    }

    /// A tensor travels in this share of its bytes.
    fn tell_size(self: &Arc<Self>, replanner: &mut Replanner<Policy>, tensor: usize, share: f64) {
        let whole = self.edges()[tensor].bytes as f64;
        let bytes = (whole * share.min(1.0)).ceil() as u64;
        self.tell(replanner, Event::Sized { tensor, bytes });
    }

    /// What goes between the layers, in the order of the problem's tensors.
    fn edges(&self) -> &[EdgeProfile] {
        &self.planned.profiles[0].profile.edges
    }
}

/// Whether there are results that were sent here.
fn came_back(legs: &[Leg], here: NodeId) -> bool {
    legs.last()
        .is_some_and(|leg| leg.node != here && leg.failed.is_none())
}

/// Whether the node is gone or cannot do its part. The next request may not ask it.
const fn is_failure(leg: &Leg) -> bool {
    leg.failed.is_some() && !leg.overtaken
}

/// Whether one that was late was waited for until its time was over. Where this node has the parts of the others, too, it begins with the
/// rest before that, behind the first stage.
const fn timed_out(leg: &Leg, is_spare: bool) -> bool {
    leg.overtaken && !(is_spare && leg.stage == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_from_another_node_that_made_them() {
        let [here, there] = [1, 2].map(|key| NodeId::of_key(&[key; 32]));
        let (first, last) = (Leg::new(0, here), Leg::new(1, there));
        let failed = Leg {
            failed: Some("it is gone".into()),
            ..last.clone()
        };
        let at_home = Leg::new(1, here);
        assert!(came_back(&[first.clone(), last.clone()], here));
        assert!(came_back(&[first.clone(), failed.clone(), last], here));
        for legs in [&[][..], &[first.clone(), at_home], &[first, failed]] {
            assert!(!came_back(legs, here), "{legs:?}");
        }
    }

    #[test]
    fn who_fails_is_lost_and_who_is_late_is_not() {
        let leg = Leg::new(1, NodeId::of_key(&[1; 32]));
        let failed = Leg {
            failed: Some("it is gone".into()),
            ..leg.clone()
        };
        let late = Leg {
            overtaken: true,
            ..failed.clone()
        };
        assert_eq!([&leg, &late, &failed].map(is_failure), [false, false, true]);
        let later = Leg {
            stage: 2,
            ..late.clone()
        };
        let all = [&leg, &late, &later, &failed];
        assert_eq!(all.map(|leg| timed_out(leg, false)), [false, true, true, false]);
        assert_eq!(all.map(|leg| timed_out(leg, true)), [false, false, true, false]);
    }
}
