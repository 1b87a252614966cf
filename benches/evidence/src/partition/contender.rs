//! Those who move their cut: ours, Neurosurgeon and the oracle. They differ in policy, tuning and in what they know.

use super::play::{Adapt, LATENCY_MS, Late, MESSAGE_MS, Message, Onward, Player, Totals, links};
use super::world::{SPACING_MS, World};
use anyhow::Result;
use karman_sched::partition::{
    Action, Event, Held, LayerGraph, LayerTime, Partitioner, Problem, Replanner, Tier, Tuning,
};
use std::time::Duration;

/// How long what is overdue is waited for.
const HELD_UP_MS: f64 = 12_000.0;

/// A re-planner in a world.
pub(crate) struct Contender<'a, P> {
    replanner: Replanner<P>,
    player: &'a Player<'a>,
    knows: Knows,
    /// Leaves messages that are late.
    rescues: bool,
    /// What will have happened, and when.
    pending: Vec<(f64, Event)>,
    /// Until when weights are on each link.
    shipping_until: [f64; 2],
    /// What was sent besides requests.
    besides: Totals,
    request: usize,
}

/// What a contender goes by.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum Knows {
    /// What it measures.
    Measured,
    /// The true speeds of the moment, not the future.
    Truth,
}

/// What a whole trace took.
pub(crate) struct Played {
    pub(crate) totals: Totals,
    pub(crate) latencies_ms: Vec<f64>,
}

impl<'a, P: Partitioner> Contender<'a, P> {
    pub(crate) fn new(
        policy: P,
        problem: Problem,
        tuning: Tuning,
        player: &'a Player<'a>,
        knows: Knows,
        rescues: bool,
    ) -> Result<Self> {
        Ok(Self {
            replanner: Replanner::new(policy, problem, tuning, Duration::ZERO)?,
            player,
            knows,
            rescues,
            pending: Vec::new(),
            shipping_until: [0.0; 2],
            besides: Totals::default(),
            request: 0,
        })
    }

    /// Runs all requests.
    pub(crate) fn play(mut self, timeout_ms: f64) -> Result<Played> {
        let player = self.player;
        let mut totals = Totals::default();
        let mut latencies_ms = Vec::with_capacity(World::requests());
        for request in 0..World::requests() {
            let now = request as f64 * SPACING_MS;
            self.request = request;
            self.catch_up(now)?;
            self.know(now)?;
            let plan = self.replanner.start();
            let took = player.run(request, &plan.assignment, timeout_ms, &mut self);
            latencies_ms.push(took.latency_ms);
            totals.add(&took);
        }
        totals.add(&self.besides);
        Ok(Played { totals, latencies_ms })
    }

    /// Everything that has happened by now, in its order.
    fn catch_up(&mut self, now: f64) -> Result<()> {
        loop {
            let due = self.replanner.due().as_secs_f64() * 1e3;
            let next = self
                .pending
                .iter()
                .enumerate()
                .min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0));
            let next = next
                .map(|(index, (at, _))| (index, *at))
                .filter(|(_, at)| *at <= due);
            let (at, event) = match next {
                Some((index, at)) if at <= now => (at, self.pending.swap_remove(index).1),
                None if due <= now => (due, Event::Tick),
                _ => return Ok(()),
            };
            let actions = self.replanner.handle(Duration::from_secs_f64(at / 1e3), event)?;
            self.perform(at, actions);
        }
    }

    fn perform(&mut self, now: f64, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Use { .. } => {}
                Action::Ship {
                    from,
                    to,
                    layers,
                    bytes,
                } => {
                    let arrived = self.ship(now, from, to, bytes as f64);
                    let event = Event::Weights {
                        tier: to,
                        layers,
                        held: true,
                    };
                    self.pending.push((arrived, event));
                }
                Action::Probe {
                    from,
                    to,
                    bytes,
                    patience_ms,
                } if self.knows == Knows::Measured => self.probe(now, (from, to), bytes, patience_ms),
                Action::Probe { .. } => {}
            }
        }
    }

    /// Weights go hop by hop at half the rate, after those before them.
    fn ship(&mut self, now: f64, from: usize, to: usize, bytes: f64) -> f64 {
        let (mut at, mut now) = (from, now);
        while at != to {
            let next = if to > at { at + 1 } else { at - 1 };
            let hop = at.min(next);
            let start = now.max(self.shipping_until[hop]);
            let sent = self
                .player
                .world
                .send(hop, start, bytes, f64::INFINITY, f64::INFINITY);
            let done = sent.unwrap_or(f64::INFINITY);
            self.besides.sent_ms[at] += done - start;
            self.shipping_until[hop] = done;
            (at, now) = (next, done);
        }
        now
    }

    fn probe(&mut self, now: f64, (from, to): (usize, usize), bytes: u64, patience_ms: f64) {
        let hop = from.min(to);
        let (world, shared) = (self.player.world, self.shipping_until[hop]);
        let begin = now + LATENCY_MS[hop] + MESSAGE_MS;
        let deadline = now + patience_ms;
        match world.send(hop, begin, bytes as f64, shared, deadline) {
            Ok(done) => {
                let ms = done - now;
                self.besides.sent_ms[from] += ms;
                self.pending.push((done, Event::Sent { from, to, bytes, ms }));
            }
            Err(arrived) => {
                let overdue = Event::Overdue {
                    from,
                    to,
                    arrived: arrived as u64,
                    ms: patience_ms,
                };
                self.besides.sent_ms[from] += patience_ms;
                self.pending.push((deadline, overdue));
                // The rest is still on its way.
                if let Ok(done) = world.send(hop, begin, bytes as f64, shared, now + HELD_UP_MS) {
                    self.besides.sent_ms[from] += (bytes as f64 - arrived) / world.rate(hop, done);
                    self.pending.push((done, Event::Back { from, to }));
                }
            }
        }
    }

    /// An oracle looks; others know what they have measured.
    fn know(&mut self, now: f64) -> Result<()> {
        if self.knows == Knows::Truth {
            let world = self.player.world;
            let mut tiers: Vec<Tier> = self.replanner.problem()?.tiers().to_vec();
            for (index, tier) in tiers.iter_mut().enumerate() {
                tier.slowdown = world.load(index, now) * world.noise(index, self.request);
            }
            let rates = [0, 1].map(|hop| {
                let shared = now < self.shipping_until[hop];
                world.rate(hop, now) * if shared { 0.5 } else { 1.0 }
            });
            let actions = self.replanner.state(tiers, links(rates))?;
            self.perform(now, actions);
        }
        Ok(())
    }
}

impl<P: Partitioner> Adapt for Contender<'_, P> {
    fn expected_ms(&self, message: &Message) -> Option<f64> {
        let ms = self
            .replanner
            .expected_ms(message.from, message.to, message.bytes);
        // Where it knows no link it has no reason to wait.
        self.rescues.then(|| ms.unwrap_or(0.0))
    }

    fn late(&mut self, late: &Late) -> Option<Onward> {
        let Message { from, to, tensor, .. } = late.message;
        match self.knows {
            Knows::Truth => self.know(late.at_ms).ok()?,
            Knows::Measured => {
                let (arrived, ms) = (late.lately.0 as u64, late.lately.1.max(0.0));
                let now = Duration::from_secs_f64(late.at_ms / 1e3).min(self.replanner.due());
                let actions = self
                    .replanner
                    .handle(
                        now,
                        Event::Overdue {
                            from,
                            to,
                            arrived,
                            ms,
                        },
                    )
                    .ok()?;
                self.perform(late.at_ms, actions);
            }
        }
        let held = |tier: usize| {
            let live = self.player.live(late.from_layer).iter();
            live.map(|tensor| Held {
                tensor: *tensor,
                tier,
            })
            .collect::<Vec<Held>>()
        };
        let here = held(late.on);
        let there = match late.on == from {
            true => held(to),
            // The result itself is under way.
            false => vec![Held { tensor, tier: to }],
        };
        let missing = late.missing.ceil() as u64;
        let waiting = self.replanner.expected_ms(from, to, missing).unwrap_or(1e9);
        let resumption = self.replanner.rescue((from, to), waiting, &there, &here)?;
        // It may be better to start again from the input, which the edge has.
        let from_layer = self.player.graph.layers().len() - resumption.suffix.layers.len();
        let on = if from_layer == late.from_layer { late.on } else { 0 };
        Some(Onward {
            from_layer,
            on,
            rest: resumption.plan.assignment,
        })
    }

    fn measured(&mut self, at_ms: f64, event: Event) {
        if self.knows == Knows::Measured {
            self.pending.push((at_ms, event));
        }
    }

    fn shared_until(&self, hop: usize) -> f64 {
        self.shipping_until[hop]
    }
}

/// The network as it truly is, for those who know.
pub(crate) fn true_graph(graph: &LayerGraph, world: &World) -> Result<LayerGraph> {
    let mut layers = graph.layers().to_vec();
    for (index, layer) in layers.iter_mut().enumerate() {
        if let LayerTime::Measured(times) = &mut layer.time {
            for (tier, ms) in times.iter_mut().enumerate() {
                *ms = ms.map(|ms| ms * world.profile_error[tier][index]);
            }
        }
    }
    Ok(LayerGraph::new(layers, graph.tensors().to_vec())?)
}
