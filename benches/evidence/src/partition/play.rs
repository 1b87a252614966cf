//! One request after the other through a world, under a cut that stays or one that moves.

use super::world::World;
use karman_sched::partition::{Event, LayerGraph, Link, Producer};
use std::borrow::Cow;

/// Milliseconds until something sent arrives, and those that each message takes besides its bytes: edge to fog, fog to cloud.
pub(crate) const LATENCY_MS: [f64; 2] = [3.0, 10.0];
pub(crate) const MESSAGE_MS: f64 = 0.2;
/// A message is overdue when it takes this many times what was expected, and at least so many milliseconds more.
const OVERDUE: (f64, f64) = (1.3, 20.0);

/// A network in a world: everything that a request meets.
pub(crate) struct Player<'a> {
    pub(crate) world: &'a World,
    pub(crate) graph: &'a LayerGraph,
    /// `until[tier][layer]`: true milliseconds of all layers before this one.
    until: [Vec<f64>; 3],
    /// `live[layer]`: the tensors that have to be there when the layers from this one on run elsewhere.
    live: Vec<Vec<usize>>,
}

/// What requests took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) latency_ms: f64,
    pub(crate) compute_ms: [f64; 3],
    pub(crate) sent_ms: [f64; 3],
}

impl Totals {
    pub(crate) fn add(&mut self, other: &Self) {
        self.latency_ms += other.latency_ms;
        for tier in 0..3 {
            self.compute_ms[tier] += other.compute_ms[tier];
            self.sent_ms[tier] += other.sent_ms[tier];
        }
    }
}

/// Something that moved: a message from a tier to its neighbour.
#[derive(Clone, Copy)]
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) tensor: usize,
    pub(crate) bytes: u64,
}

/// A message that is late.
pub(crate) struct Late {
    pub(crate) message: Message,
    /// When.
    pub(crate) at_ms: f64,
    /// Bytes that came in the latest so many milliseconds.
    pub(crate) lately: (f64, f64),
    /// Bytes that are missing.
    pub(crate) missing: f64,
    /// From which layer, with what on which tier, the request can go on now.
    pub(crate) from_layer: usize,
    pub(crate) on: usize,
}

/// How a request goes on: from this layer, which finds its inputs on this tier, with these tiers for the rest.
pub(crate) struct Onward {
    pub(crate) from_layer: usize,
    pub(crate) on: usize,
    pub(crate) rest: Vec<usize>,
}

/// What may change a request's plan while it runs, and listens to what it measures.
pub(crate) trait Adapt {
    /// How long it expects a message to take.
    fn expected_ms(&self, message: &Message) -> Option<f64>;
    /// A message is late: how the request goes on if it is left.
    fn late(&mut self, late: &Late) -> Option<Onward>;
    /// Something was measured.
    fn measured(&mut self, at_ms: f64, event: Event);
    /// Until when weights share each link.
    fn shared_until(&self, hop: usize) -> f64;
}

/// A cut that stays, whatever happens.
pub(crate) struct Static;

impl Adapt for Static {
    fn expected_ms(&self, _: &Message) -> Option<f64> {
        None
    }

    fn late(&mut self, _: &Late) -> Option<Onward> {
        None
    }

    fn measured(&mut self, _: f64, _: Event) {}

    fn shared_until(&self, _: usize) -> f64 {
        0.0
    }
}

/// How a message ended.
enum Passage {
    Arrived,
    /// It was left.
    Left(Onward),
    TimedOut,
}

/// Where a request is.
struct Run {
    request: usize,
    now: f64,
    deadline: f64,
    totals: Totals,
    /// The layer at which the edge handed over, if it did: it keeps what it sent until the result is there.
    kept: usize,
}

impl<'a> Player<'a> {
    pub(crate) fn new(world: &'a World, graph: &'a LayerGraph) -> Self {
        let until = [0, 1, 2].map(|tier| {
            let mut sum = 0.0;
            let mut until = vec![0.0];
            for (layer, error) in graph.layers().iter().zip(&world.profile_error[tier]) {
                sum += profile_ms(layer, tier) * error;
                until.push(sum);
            }
            until
        });
        let crosses = |layer: usize| {
            let tensors = graph.tensors().iter().enumerate();
            let live = tensors.filter(move |(_, tensor)| {
                let made = match tensor.from {
                    Producer::Held(_) => true,
                    Producer::Layer(maker) => maker < layer,
                };
                made && tensor.to.iter().any(|taker| *taker >= layer)
            });
            live.map(|(index, _)| index).collect()
        };
        Self {
            world,
            graph,
            until,
            live: (0..graph.layers().len()).map(crosses).collect(),
        }
    }

    /// The tensors that have to be there when the layers from this one on run elsewhere.
    pub(crate) fn live(&self, layer: usize) -> &[usize] {
        &self.live[layer]
    }

    /// Runs one request by this cut, at most for so long.
    pub(crate) fn run(
        &self,
        request: usize,
        assignment: &[usize],
        timeout_ms: f64,
        adapt: &mut impl Adapt,
    ) -> Totals {
        let start = request as f64 * super::world::SPACING_MS;
        let mut run = Run {
            request,
            now: start,
            deadline: start + timeout_ms,
            totals: Totals::default(),
            kept: 0,
        };
        let finished = self.layers(&mut run, assignment, adapt);
        run.totals.latency_ms = if finished { run.now - start } else { timeout_ms };
        run.totals
    }

    fn layers(&self, run: &mut Run, assignment: &[usize], adapt: &mut impl Adapt) -> bool {
        let mut assignment = Cow::Borrowed(assignment);
        let (mut layer, mut tier) = (0, 0);
        loop {
            let wanted = assignment.get(layer).copied().unwrap_or(0);
            if wanted != tier {
                let next = if wanted > tier { tier + 1 } else { tier - 1 };
                if tier == 0 {
                    run.kept = layer;
                }
                match self.hop(run, (tier, next), layer, adapt) {
                    Passage::Arrived => tier = next,
                    Passage::TimedOut => return false,
                    Passage::Left(Onward { from_layer, on, rest }) => {
                        let assignment = assignment.to_mut();
                        assignment.truncate(from_layer);
                        assignment.extend(rest);
                        (layer, tier) = (from_layer, on);
                    }
                }
                continue;
            }
            if layer == assignment.len() {
                return true;
            }
            let same = assignment[layer..]
                .iter()
                .take_while(|other| **other == tier)
                .count();
            let ms = self.until[tier][layer + same] - self.until[tier][layer];
            let ms = ms * self.world.load(tier, run.now) * self.world.noise(tier, run.request);
            if run.now + ms > run.deadline {
                return false;
            }
            run.now += ms;
            run.totals.compute_ms[tier] += ms;
            let layers = (layer..layer + same).collect();
            adapt.measured(run.now, Event::Computed { tier, layers, ms });
            layer += same;
        }
    }

    /// Everything that is needed from this layer on goes to a neighbour; behind the last layer that is the result.
    fn hop(
        &self,
        run: &mut Run,
        (from, to): (usize, usize),
        layer: usize,
        adapt: &mut impl Adapt,
    ) -> Passage {
        let result = [self.graph.tensors().len() - 1];
        let tensors = self.live.get(layer).map_or(&result[..], Vec::as_slice);
        for tensor in tensors.iter().copied() {
            let message = Message {
                from,
                to,
                tensor,
                bytes: self.graph.tensors()[tensor].bytes,
            };
            // Behind the last layer only the edge could start again, with what it kept.
            let resume = if layer < self.live.len() {
                (layer, from)
            } else {
                (run.kept, 0)
            };
            match self.message(run, message, resume, adapt) {
                Passage::Arrived => {}
                ended => return ended,
            }
        }
        Passage::Arrived
    }

    fn message(
        &self,
        run: &mut Run,
        message: Message,
        (from_layer, on): (usize, usize),
        adapt: &mut impl Adapt,
    ) -> Passage {
        let hop = message.from.min(message.to);
        let start = run.now;
        let begin = start + LATENCY_MS[hop] + MESSAGE_MS;
        let expected = adapt.expected_ms(&message);
        let (mut seen, mut seen_at) = (0.0, begin);
        let patience = expected.map(|ms| (ms * OVERDUE.0).max(ms + OVERDUE.1));
        let mut check = patience.map_or(f64::INFINITY, |patience| start + patience);
        loop {
            let shared = adapt.shared_until(hop);
            let sent = self
                .world
                .send(hop, begin, message.bytes as f64, shared, check.min(run.deadline));
            match sent {
                Ok(done) => {
                    let ms = done - start;
                    run.totals.sent_ms[message.from] += ms;
                    run.now = done;
                    let Message { from, to, bytes, .. } = message;
                    adapt.measured(done, Event::Sent { from, to, bytes, ms });
                    return Passage::Arrived;
                }
                Err(arrived) if check < run.deadline => {
                    let late = Late {
                        message,
                        at_ms: check,
                        lately: (arrived - seen, check - seen_at),
                        missing: message.bytes as f64 - arrived,
                        from_layer,
                        on,
                    };
                    if let Some(onward) = adapt.late(&late) {
                        run.totals.sent_ms[message.from] += check - start;
                        run.now = check;
                        return Passage::Left(onward);
                    }
                    (seen, seen_at) = (arrived, check);
                    check += expected.unwrap_or(f64::INFINITY).max(50.0) / 2.0;
                }
                Err(_) => {
                    run.totals.sent_ms[message.from] += run.deadline - start;
                    return Passage::TimedOut;
                }
            }
        }
    }
}

/// Links in both directions between neighbours, at these rates; none where nothing goes.
pub(crate) fn links(bytes_per_ms: [f64; 2]) -> Vec<Link> {
    let link = |from: usize, to: usize| {
        let hop = from.min(to);
        Link {
            from,
            to,
            rate_mbit_s: bytes_per_ms[hop] * 8.0 / 1e3,
            latency_ms: LATENCY_MS[hop],
            message_ms: MESSAGE_MS,
        }
    };
    let all = [(0, 1), (1, 0), (1, 2), (2, 1)].map(|(from, to)| link(from, to));
    all.into_iter().filter(|link| link.rate_mbit_s > 0.0).collect()
}

fn profile_ms(layer: &karman_sched::partition::Layer, tier: usize) -> f64 {
    match &layer.time {
        karman_sched::partition::LayerTime::Measured(times) => times[tier].unwrap_or(f64::INFINITY),
        karman_sched::partition::LayerTime::Reference(ms) => *ms,
    }
}
