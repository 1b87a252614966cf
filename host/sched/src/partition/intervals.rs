//! The best cut of an ordered row of layers into one interval for each tier, under memory limits.
//!
//! A dynamic program over (tier, where its interval ends). A step takes a whole interval, so its memory is known exactly. Where
//! the slowest stage counts besides sums, the program keeps for each end every pair (sum, slowest stage) that no other
//! beats: the answer stays exact. What it does not see is one link that several of its crossings use, or results on their way
//! back: the slowest stage may be slower than it says, never faster, so what it says is a lower bound.

use super::Producer;
use super::frame::Frame;

/// How a row of layers up to some end can be reached.
#[derive(Clone, Copy)]
struct Label {
    /// What it costs, without the slowest stage.
    cost: f64,
    /// Milliseconds of the slowest stage; zero where stages do not count.
    slowest: f64,
    /// Where the last interval begins, and by which label of that end.
    start: usize,
    before: usize,
}

/// What crosses between two tiers that follow each other, for each place where the row could be cut.
struct Crossing {
    cost: Vec<f64>,
    busy_ms: Vec<f64>,
}

/// The cheapest assignment whose tiers are intervals of `order`, if any fits, and what it costs at least, but for what is the same for
/// all ([`Frame::fixed_cost`]): no other one that uses these tiers costs less.
pub(crate) fn best(frame: &Frame<'_>, order: &[usize]) -> Option<(Vec<usize>, f64)> {
    let interval_weight = frame.problem.objective().interval;
    let crossings: Vec<Crossing> = crossings(frame, order);
    let layers = order.len();
    let start = Label {
        cost: 0.0,
        slowest: 0.0,
        start: 0,
        before: 0,
    };
    // ends[places][end]: the ways to the row up to there, with the tiers at so many places.
    let mut ends: Vec<Vec<Vec<Label>>> = Vec::with_capacity(frame.tiers.len() + 1);
    ends.push(vec![Vec::new(); layers + 1]);
    ends[0][0].push(start);
    for place in 0..frame.tiers.len() {
        let mut closed = vec![Vec::new(); layers + 1];
        let open = ends[place].iter().enumerate();
        for (start, labels) in open.filter(|(_, labels)| !labels.is_empty()) {
            let mut interval = Interval::new(frame, place);
            for end in start..=layers {
                if end > start && !interval.push(order[end - 1]) {
                    break;
                }
                let crossing = crossings.get(place);
                if crossing.is_none() && end < layers {
                    continue;
                }
                let cost = interval.cost + crossing.map_or(0.0, |crossing| crossing.cost[end]);
                let busy_ms = crossing.map_or(0.0, |crossing| crossing.busy_ms[end]);
                if cost.is_finite() {
                    for (before, label) in labels.iter().enumerate() {
                        let stage = interval.stage_ms.max(busy_ms).max(label.slowest);
                        let label = Label {
                            cost: label.cost + cost,
                            slowest: if interval_weight > 0.0 { stage } else { 0.0 },
                            start,
                            before,
                        };
                        insert(&mut closed[end], label);
                    }
                }
            }
        }
        ends.push(closed);
    }
    let total = |label: &Label| label.cost + interval_weight * label.slowest;
    let last = ends[frame.tiers.len()][layers].iter().enumerate();
    let (mut label, least) = last.min_by(|(_, a), (_, b)| total(a).total_cmp(&total(b)))?;
    let bound = total(least);
    let mut assignment = vec![0; layers];
    let mut end = layers;
    for (place, tier) in frame.tiers.iter().enumerate().rev() {
        let Label { start, before, .. } = ends[place + 1][end][label];
        for layer in &order[start..end] {
            assignment[*layer] = *tier;
        }
        (end, label) = (start, before);
    }
    Some((assignment, bound))
}

/// Keeps what no other label beats.
fn insert(labels: &mut Vec<Label>, new: Label) {
    let beats = |a: &Label, b: &Label| a.cost <= b.cost && a.slowest <= b.slowest;
    if labels.iter().any(|label| beats(label, &new)) {
        return;
    }
    labels.retain(|label| !beats(&new, label));
    labels.push(new);
}

/// Layers that follow each other on one tier.
struct Interval<'a> {
    frame: &'a Frame<'a>,
    place: usize,
    cost: f64,
    compute_ms: f64,
    stage_ms: f64,
    weight_bytes: u64,
    working_bytes: u64,
}

impl<'a> Interval<'a> {
    const fn new(frame: &'a Frame<'a>, place: usize) -> Self {
        Self {
            frame,
            place,
            cost: 0.0,
            compute_ms: 0.0,
            stage_ms: 0.0,
            weight_bytes: 0,
            working_bytes: 0,
        }
    }

    /// Adds the next layer; whether the tier can run it and still holds them all.
    fn push(&mut self, layer: usize) -> bool {
        let Frame {
            problem, tiers, run, ..
        } = self.frame;
        let tier = tiers[self.place];
        let sizes = &problem.graph().layers()[layer];
        self.weight_bytes = self.weight_bytes.saturating_add(sizes.weight_bytes);
        self.working_bytes = self.working_bytes.max(sizes.working_bytes);
        self.cost += run[self.place][layer];
        self.compute_ms += problem.layer_ms(layer, tier).unwrap_or(f64::INFINITY);
        self.stage_ms = self
            .stage_ms
            .max(self.compute_ms)
            .max(self.frame.back_ms[self.place][layer]);
        let needs = self.weight_bytes.saturating_add(self.working_bytes);
        let limit = problem.tiers()[tier].memory_bytes;
        self.cost.is_finite() && limit.is_none_or(|limit| needs <= limit)
    }
}

fn crossings(frame: &Frame<'_>, order: &[usize]) -> Vec<Crossing> {
    let mut place_of = vec![0; order.len()];
    for (place, layer) in order.iter().enumerate() {
        place_of[*layer] = place;
    }
    let stages_count = frame.problem.objective().interval > 0.0;
    let levels = 0..frame.tiers.len() - 1;
    let crossing = |level: usize| {
        let mut cost = Ranges::new(order.len());
        let mut busy = vec![
            Ranges::new(order.len());
            if stages_count {
                frame.problem.links().len()
            } else {
                0
            }
        ];
        for (index, tensor) in frame.problem.graph().tensors().iter().enumerate() {
            let takers = || tensor.to.iter().map(|layer| place_of[*layer]);
            let (Some(first), Some(last)) = (takers().min(), takers().max()) else {
                continue;
            };
            // Cut there, the tensor crosses: up behind its producer and before its last taker, down behind its first.
            let (up, cuts) = match tensor.from {
                Producer::Layer(layer) => (true, place_of[layer] + 1..last + 1),
                Producer::Held(tier) if frame.place(tier) <= level => (true, 0..last + 1),
                Producer::Held(_) => (false, first + 1..order.len() + 1),
            };
            let costs = if up { &frame.up } else { &frame.down };
            cost.add(cuts.clone(), costs[level][index]);
            let (near, far) = (frame.tiers[level], frame.tiers[level + 1]);
            let (from, to) = if up { (near, far) } else { (far, near) };
            if let Some(path) = frame
                .problem
                .path(from, to, tensor.bytes)
                .filter(|_| stages_count)
            {
                for link in &path.links {
                    busy[*link].add(cuts.clone(), frame.problem.links()[*link].busy_ms(tensor.bytes));
                }
            }
        }
        let slowest = |slowest: Vec<f64>, link: Ranges| {
            let busy = link.sums();
            slowest.iter().zip(busy).map(|(a, b)| a.max(b)).collect()
        };
        Crossing {
            cost: cost.sums(),
            busy_ms: busy.into_iter().fold(vec![0.0; order.len() + 1], slowest),
        }
    };
    levels.map(crossing).collect()
}

/// Sums over ranges of places. What is infinite is counted, for it could not be taken off again.
#[derive(Clone)]
struct Ranges {
    finite: Vec<f64>,
    infinite: Vec<i64>,
}

impl Ranges {
    fn new(layers: usize) -> Self {
        Self {
            finite: vec![0.0; layers + 2],
            infinite: vec![0; layers + 2],
        }
    }

    fn add(&mut self, places: std::ops::Range<usize>, value: f64) {
        if value.is_finite() {
            self.finite[places.start] += value;
            self.finite[places.end] -= value;
        } else {
            self.infinite[places.start] += 1;
            self.infinite[places.end] -= 1;
        }
    }

    fn sums(mut self) -> Vec<f64> {
        for place in 1..self.finite.len() {
            self.finite[place] += self.finite[place - 1];
            self.infinite[place] += self.infinite[place - 1];
        }
        self.finite.pop();
        let sums = self.finite.into_iter().zip(self.infinite);
        // Rounding must not make less than nothing of what cancels out.
        sums.map(|(sum, infinite)| if infinite > 0 { f64::INFINITY } else { sum.max(0.0) })
            .collect()
    }
}
