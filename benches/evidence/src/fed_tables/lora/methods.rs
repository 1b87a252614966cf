//! The methods: how clients begin a round, what they train, and what becomes of their adapters.

use crate::fed_tables::digits::{self, Sample, by_label};
use crate::fed_tables::net::{Net, Pull, add};
use crate::fed_tables::per_seed;
use anyhow::Result;
use fastrand::Rng;
use karman_fed::lora::{Adapter, Compressed, LoraError, Weighted, factor_mean, florist, segment_mean};
use karman_sim::normal;

/// A way to aggregate adapters of unequal ranks.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Method {
    /// Means of factors, padded with zeros (FedIT).
    FactorMean,
    /// The stack itself goes to everybody, who adds it to the weight (FLoRA).
    Stack,
    /// The exact mean, brought down to each client's rank (FlexLoRA).
    Redistribute,
    /// A is common and frozen, means of B (FFA-LoRA).
    FrozenA,
    /// The exact mean, brought down to this share of its squares, added to the weight.
    Florist(f64),
    /// Means of rank segments; clients also train truncations.
    Segments,
}

pub(super) const METHODS: [(&str, Method); 7] = [
    ("factor-mean", Method::FactorMean),
    ("flora", Method::Stack),
    ("flex-lora", Method::Redistribute),
    ("ffa-lora", Method::FrozenA),
    ("florist", Method::Florist(0.99)),
    ("florist-thrifty", Method::Florist(0.9)),
    ("prelort", Method::Segments),
];

/// The ranks of the eight clients, in the proportions of the FLoRIST paper, and the levels they make.
const RANKS: [usize; 8] = [1, 1, 2, 2, 4, 4, 8, 16];
const LEVELS: [usize; 5] = [1, 2, 4, 8, 16];
/// The layers that have adapters.
const LAYERS: usize = 2;
const ROUNDS: usize = 3;
const EPOCHS: usize = 3;
const BATCH: usize = 16;
const RATES: [f32; 5] = [0.05, 0.1, 0.2, 0.4, 0.8];
const TUNING_SEEDS: std::ops::Range<u64> = 1000..1004;

/// What a method came to.
pub(super) struct Outcome {
    pub(super) accuracy: f64,
    /// Bytes to and from all clients.
    pub(super) bytes: usize,
}

/// The step with the best mean accuracy on the tuning seeds.
pub(super) fn tuned(method: Method) -> Result<f32> {
    let mut best = (f64::MIN, RATES[0]);
    for rate in RATES {
        let outcomes = per_seed(TUNING_SEEDS, |seed| adapt(method, rate, seed))?;
        let sum: f64 = outcomes.iter().map(|outcome| outcome.accuracy).sum();
        if sum > best.0 {
            best = (sum, rate);
        }
    }
    Ok(best.1)
}

/// What goes on from round to round.
struct Server {
    method: Method,
    net: Net,
    /// With everything that was added to it.
    model: Vec<f32>,
    /// What is trained on, for the methods that do not add it: one for each layer.
    global: Vec<Global>,
    random: Rng,
}

enum Global {
    Nothing,
    Pair(Adapter),
    Exact(Compressed),
}

/// Adapts a net that was trained on transposed digits to upright ones.
pub(super) fn adapt(method: Method, rate: f32, seed: u64) -> Result<Outcome> {
    let mut random = Rng::with_seed(seed);
    let split = digits::split(&mut random);
    let net = Net::deep();
    let model = pretrained(&net, &split.train, &mut random);
    let shards = by_label(split.train, RANKS.len(), 0.5, &mut random);
    let mut server = Server {
        method,
        net,
        model,
        global: (0..LAYERS).map(|_| Global::Nothing).collect(),
        random,
    };
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        match server.round(&shards, rate) {
            Ok(of_round) => bytes += of_round,
            // A step too large for this seed: what it has learned is worth nothing.
            Err(LoraError::NotFinite { .. }) => return Ok(Outcome { accuracy: 0.0, bytes }),
            Err(error) => return Err(error.into()),
        }
    }
    let adapted = server.adapted();
    Ok(Outcome {
        accuracy: server.net.accuracy(&adapted, &split.held),
        bytes,
    })
}

/// A net that knows the digits lying on their side.
fn pretrained(net: &Net, train: &[Sample], random: &mut Rng) -> Vec<f32> {
    let transposed = |sample: &Sample| Sample {
        pixels: std::array::from_fn(|i| sample.pixels[i % 8 * 8 + i / 8]),
        label: sample.label,
    };
    let train: Vec<Sample> = train.iter().map(transposed).collect();
    let mut model = net.initial(random);
    let how = karman_fed::Train {
        epochs: 20,
        batch: 16,
        learning_rate: 0.1,
        most_steps: None,
        proximal: 0.0,
        rows: 1,
        control: None,
        adapters: None,
        stateless: false,
        counted: None,
        seed: 0,
        encoding: karman_tensor::encode::Encoding::F32,
        pack: false,
    };
    let pull = Pull {
        proximal: 0.0,
        drift: None,
    };
    net.train(&mut model, &train, &how, &pull, random);
    model
}

impl Server {
    /// One round with all clients; gives the bytes that went to and fro.
    fn round(&mut self, shards: &[Vec<Sample>], rate: f32) -> Result<usize, LoraError> {
        let mut trained: Vec<Vec<Adapter>> = Vec::new();
        for (shard, rank) in shards.iter().zip(RANKS) {
            let start = self.start(rank)?;
            trained.push(self.train(shard, start, rate)?);
        }
        let mut bytes: usize = trained
            .iter()
            .flatten()
            .map(|adapter| self.share_sent(adapter.bytes()))
            .sum();
        for layer in 0..LAYERS {
            let clients = trained.iter().zip(shards);
            let weighted: Vec<Weighted<'_>> = clients
                .map(|(adapters, shard)| Weighted {
                    adapter: &adapters[layer],
                    weight: shard.len() as f64,
                })
                .collect();
            bytes += self.aggregate(layer, &weighted)?;
        }
        Ok(bytes)
    }

    /// With a frozen A only B is sent.
    fn share_sent(&self, bytes: usize) -> usize {
        if self.method == Method::FrozenA {
            bytes / 2
        } else {
            bytes
        }
    }

    /// The adapters from which a client of this rank trains.
    fn start(&mut self, rank: usize) -> Result<Vec<Adapter>, LoraError> {
        let layers: Vec<(usize, usize)> = self.net.layers().take(LAYERS).collect();
        let mut adapters = Vec::new();
        for (layer, (inputs, outputs)) in layers.into_iter().enumerate() {
            adapters.push(match &self.global[layer] {
                Global::Pair(global) => global.prefix(rank),
                Global::Exact(exact) => exact.for_rank(rank),
                Global::Nothing => {
                    // The frozen A, and that of nested prefixes, is everybody's.
                    let common = matches!(
                        self.method,
                        Method::FrozenA | Method::Segments | Method::FactorMean
                    );
                    let mut own = Rng::with_seed(if common { layer as u64 } else { self.random.u64(..) });
                    let width = (1.0 / inputs as f64).sqrt();
                    let a = (0..rank * inputs)
                        .map(|_| (width * normal(&mut own)) as f32)
                        .collect();
                    Adapter::new(outputs, inputs, rank, vec![0.0; outputs * rank], a)?
                }
            });
        }
        Ok(adapters)
    }

    /// Local training: gradients of the whole weight, passed on to the factors.
    fn train(&mut self, shard: &[Sample], start: Vec<Adapter>, rate: f32) -> Result<Vec<Adapter>, LoraError> {
        let mut adapters = start;
        let mut order: Vec<&Sample> = shard.iter().collect();
        for _ in 0..EPOCHS {
            self.random.shuffle(&mut order);
            for batch in order.chunks(BATCH) {
                let rank = adapters[0].rank();
                let below: Vec<usize> = LEVELS.into_iter().filter(|level| *level < rank).collect();
                if self.method == Method::Segments && !below.is_empty() {
                    // Half of the loss is that of the whole, half that of a truncation drawn anew.
                    let level = below[self.random.usize(..below.len())];
                    let whole = self.gradients(&adapters, rank, batch);
                    let truncated = self.gradients(&adapters, level, batch);
                    step(&mut adapters, &whole, rank, rate / 2.0, true)?;
                    step(&mut adapters, &truncated, level, rate / 2.0, true)?;
                } else {
                    let gradients = self.gradients(&adapters, rank, batch);
                    step(
                        &mut adapters,
                        &gradients,
                        rank,
                        rate,
                        self.method != Method::FrozenA,
                    )?;
                }
            }
        }
        Ok(adapters)
    }

    /// The gradient of each adapted weight when the first ranks of the adapters count.
    fn gradients(&self, adapters: &[Adapter], rank: usize, batch: &[&Sample]) -> Vec<Vec<f32>> {
        let mut model = self.model.clone();
        for (offset, adapter) in self.net.offsets().into_iter().zip(adapters) {
            add(&mut model[offset..], 1.0, &adapter.prefix(rank).product());
        }
        let (gradient, _) = self.net.gradient(&model, batch);
        let of_layer = |(offset, adapter): (usize, &Adapter)| {
            let (rows, columns) = adapter.shape();
            gradient[offset..offset + rows * columns].to_vec()
        };
        self.net
            .offsets()
            .into_iter()
            .zip(adapters)
            .map(of_layer)
            .collect()
    }

    /// Aggregates one layer; gives the bytes that go back to all clients.
    fn aggregate(&mut self, layer: usize, weighted: &[Weighted<'_>]) -> Result<usize, LoraError> {
        let offset = self.net.offsets()[layer];
        let to_each = |global: &Adapter| {
            RANKS
                .iter()
                .map(|rank| global.prefix(*rank).bytes())
                .sum::<usize>()
        };
        match self.method {
            Method::FactorMean | Method::FrozenA | Method::Segments => {
                let global = match self.method {
                    Method::Segments => segment_mean(weighted, &LEVELS)?,
                    _ => factor_mean(weighted)?,
                };
                // The frozen A is known to everybody; zeros that stand for ranks a client has not are not averaged into it.
                let global = match self.method {
                    Method::FrozenA => with_a_of_longest(&global, weighted)?,
                    _ => global,
                };
                let bytes = self.share_sent(to_each(&global));
                self.global[layer] = Global::Pair(global);
                Ok(bytes)
            }
            Method::Redistribute => {
                let exact = florist(weighted, 1.0)?;
                let bytes = RANKS.iter().map(|rank| exact.for_rank(*rank).bytes()).sum();
                self.global[layer] = Global::Exact(exact);
                Ok(bytes)
            }
            Method::Stack => {
                let exact = florist(weighted, 1.0)?.adapter();
                add(&mut self.model[offset..], 1.0, &exact.product());
                let stack: usize = weighted.iter().map(|it| it.adapter.bytes()).sum();
                Ok(RANKS.len() * stack)
            }
            Method::Florist(threshold) => {
                let pair = florist(weighted, threshold)?.adapter();
                add(&mut self.model[offset..], 1.0, &pair.product());
                Ok(RANKS.len() * pair.bytes())
            }
        }
    }

    /// The model with what is not added to it yet.
    fn adapted(&self) -> Vec<f32> {
        let mut model = self.model.clone();
        for (offset, global) in self.net.offsets().into_iter().zip(&self.global) {
            match global {
                Global::Nothing => {}
                Global::Pair(pair) => add(&mut model[offset..], 1.0, &pair.product()),
                Global::Exact(exact) => add(&mut model[offset..], 1.0, &exact.adapter().product()),
            }
        }
        model
    }
}

/// The mean of B with the frozen A, which the client of the largest rank has whole.
fn with_a_of_longest(global: &Adapter, weighted: &[Weighted<'_>]) -> Result<Adapter, LoraError> {
    let longest = weighted
        .iter()
        .map(|it| it.adapter)
        .max_by_key(|adapter| adapter.rank());
    let a = longest.map_or_else(Vec::new, |adapter| adapter.a().to_vec());
    let (rows, columns) = global.shape();
    Adapter::new(rows, columns, global.rank(), global.b().to_vec(), a)
}

/// One step of gradient descent on the first ranks of each adapter: `dB = G Aᵀ`, `dA = Bᵀ G`.
fn step(
    adapters: &mut [Adapter],
    gradients: &[Vec<f32>],
    first: usize,
    rate: f32,
    train_a: bool,
) -> Result<(), LoraError> {
    for (adapter, gradient) in adapters.iter_mut().zip(gradients) {
        let ((rows, columns), rank) = (adapter.shape(), adapter.rank());
        let (mut b, mut a) = (adapter.b().to_vec(), adapter.a().to_vec());
        for k in 0..first {
            let row_of_a = &adapter.a()[k * columns..(k + 1) * columns];
            for i in 0..rows {
                let row = &gradient[i * columns..(i + 1) * columns];
                let of_b: f32 = row.iter().zip(row_of_a).map(|(g, a)| g * a).sum();
                b[i * rank + k] -= rate * of_b;
                if train_a {
                    add(
                        &mut a[k * columns..(k + 1) * columns],
                        -rate * adapter.b()[i * rank + k],
                        row,
                    );
                }
            }
        }
        *adapter = Adapter::new(rows, columns, rank, b, a)?;
    }
    Ok(())
}
