//! Requests go by the plan of the moment once its stages are ready, whatever comes between.

use super::Pilot;
use crate::drive::split::plan::{Route, tiers_of};
use crate::drive::split::profiles::free_memory;
use crate::node::Node;
use karman_sched::partition::Plan;
use karman_types::{ErrorKind, TaskError};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Pilot {
    /// Sees to it that requests go by the plan of the moment.
    pub(super) async fn follow(self: &Arc<Self>, node: &Node) {
        if let Err(error) = self.catch_up(node).await {
            tracing::warn!(model = self.planned.model.name, %error, "a cut stays where it is");
        }
    }

    /// Has the stages of the plan made ready, and lets requests go by it; where there is another one by then, of that.
    ///
    /// # Errors
    /// What keeps a stage from being ready: requests go by the cut that they went by.
    pub(super) async fn catch_up(self: &Arc<Self>, node: &Node) -> Result<(), TaskError> {
        let _only = self.following.lock().await;
        loop {
            let plan = self.planner.plan().await;
            if !self.is_behind(&plan) {
                return Ok(());
            }
            let route = self.planned.route(&plan);
            // Where another plan comes, nobody waits for a node that this one needs: it may be out of reach.
            let prepared = tokio::select! {
                prepared = self.planned.prepare(node, &route) => prepared,
                () = self.moved.notified() => continue,
            };
            if let Err((at, error)) = prepared {
                let is_out_of_reach = matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Deadline);
                if let Some(tier) = self.tier_of(at).filter(|_| is_out_of_reach) {
                    self.think(move |pilot, replanner| pilot.lose(replanner, tier))
                        .await;
                }
                if Arc::ptr_eq(&plan, &self.planner.plan().await) {
                    return Err(error);
                }
            }
            if !Arc::ptr_eq(&plan, &self.planner.plan().await) {
                continue;
            }
            let cut: Vec<String> = route.tiers.iter().map(|tier| self.part(&route, *tier)).collect();
            let (model, cause) = (&self.planned.model.name, *self.cause.lock());
            tracing::info!(model, cut = cut.join(", "), %cause, "a cut has moved");
            let (pilot, route) = (self.clone(), Arc::new(route));
            let new = route.clone();
            let taken = self.planner.with(move |replanner| {
                pilot.take(replanner, new);
                Ok(())
            });
            taken.await?;
            self.spare(node, route);
        }
    }

    /// Whether requests go by another plan, and nobody is about to change that.
    pub(super) async fn is_left_behind(&self) -> bool {
        let plan = self.planner.plan().await;
        let is_free = self.following.try_lock().is_ok();
        is_free && self.is_behind(&plan)
    }

    /// Whether requests go by another cut than that of the plan, or to it on another way.
    fn is_behind(&self, plan: &Plan) -> bool {
        let route = self.way.read().route.clone();
        route.assignment != plan.assignment || route.tiers != tiers_of(plan)
    }

    /// Loads the stages of the others here as well, where there is room, to begin with them when the others are late.
    pub(super) fn spare(self: &Arc<Self>, node: &Node, route: Arc<Route>) {
        const ROOM: u64 = 8;
        let room = free_memory().unwrap_or_default() / ROOM;
        if !self.planned.order.overtakes() || self.planned.model.bytes > room {
            return;
        }
        let (stages, pilot) = (node.split().stages().clone(), Arc::downgrade(self));
        tokio::spawn(async move {
            for station in &route.stations {
                if let Err(error) = stages.get(&route.cut, station.stage).await {
                    return tracing::debug!(stage = station.stage, %error, "nothing stands in for the others here");
                }
            }
            route.spare.store(true, Ordering::Relaxed);
            if let Some(pilot) = pilot.upgrade() {
                // From now on the others are late when they are.
                pilot.think(|_, _| ()).await;
            }
        });
    }
}
