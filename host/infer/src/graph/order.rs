//! Where each name comes from; which nodes an output needs, in which order, and what of them is constant.

use super::raw::{Raw, RawNode};
use crate::InferError;
use crate::outline::Outline;
use crate::screen::printable;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

/// Operators that draw their output: two copies of one would draw two.
const RANDOM: [&str; 6] = [
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
    "Bernoulli",
];

/// Where a name comes from.
#[derive(Clone, Copy)]
enum Source {
    Input,
    Constant,
    Node(usize),
}

pub(super) struct Names<'a>(HashMap<&'a str, Source>);

impl<'a> Names<'a> {
    pub(super) fn of(raw: &Raw<'a>, outline: &'a Outline) -> Result<Self, InferError> {
        let inputs = outline
            .inputs
            .iter()
            .map(|info| (info.name.as_str(), Source::Input));
        let tensors = raw.tensors.iter().map(|tensor| (tensor.name, Source::Constant));
        let made = raw
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(at, node)| node.makes().map(move |name| (name, Source::Node(at))));
        let mut names = HashMap::new();
        for (name, source) in inputs.chain(tensors).chain(made) {
            if names.insert(name, source).is_some() {
                return Err(InferError::malformed(format!(
                    "`{}` is made twice",
                    printable(name)
                )));
            }
        }
        Ok(Self(names))
    }

    fn get(&self, name: &str, user: &str) -> Result<Source, InferError> {
        self.0.get(name).copied().ok_or_else(|| {
            InferError::malformed(format!(
                "`{}` takes `{}`, which nothing makes",
                printable(user),
                printable(name)
            ))
        })
    }

    /// The nodes that this one waits for.
    fn before(&self, node: &RawNode<'a>) -> Result<Vec<usize>, InferError> {
        let mut before = Vec::new();
        for name in node.takes() {
            if let Source::Node(at) = self.get(name, node.name)? {
                before.push(at);
            }
        }
        before.sort_unstable();
        before.dedup();
        Ok(before)
    }
}

/// The nodes in an order in which each comes after all that it needs; as they stand in the file where that is one.
pub(super) fn order(raw: &Raw<'_>, names: &Names<'_>) -> Result<Vec<usize>, InferError> {
    let mut waiting = vec![0usize; raw.nodes.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); raw.nodes.len()];
    for (at, node) in raw.nodes.iter().enumerate() {
        for before in names.before(node)? {
            waiting[at] += 1;
            after[before].push(at);
        }
    }
    let mut ready: BinaryHeap<_> = (0..raw.nodes.len())
        .filter(|at| waiting[*at] == 0)
        .map(Reverse)
        .collect();
    let mut order = Vec::with_capacity(raw.nodes.len());
    while let Some(Reverse(at)) = ready.pop() {
        order.push(at);
        for next in &after[at] {
            waiting[*next] -= 1;
            if waiting[*next] == 0 {
                ready.push(Reverse(*next));
            }
        }
    }
    match waiting.iter().position(|count| *count > 0) {
        None => Ok(order),
        Some(at) => Err(InferError::malformed(format!(
            "`{}` lies on a cycle, or after one",
            printable(raw.nodes[at].name)
        ))),
    }
}

/// Those of the ordered nodes that an output needs.
pub(super) fn live(
    raw: &Raw<'_>,
    outline: &Outline,
    names: &Names<'_>,
    order: &[usize],
) -> Result<Vec<usize>, InferError> {
    let mut needed = vec![false; raw.nodes.len()];
    for output in &outline.outputs {
        if let Source::Node(at) = names.get(&output.name, "the model")? {
            needed[at] = true;
        }
    }
    for at in order.iter().rev() {
        if needed[*at] {
            for before in names.before(&raw.nodes[*at])? {
                needed[before] = true;
            }
        }
    }
    Ok(order.iter().copied().filter(|at| needed[*at]).collect())
}

/// For each node whether it depends on no input.
pub(super) fn constant(raw: &Raw<'_>, names: &Names<'_>, order: &[usize]) -> Vec<bool> {
    let mut constant = vec![false; raw.nodes.len()];
    for at in order {
        let node = &raw.nodes[*at];
        constant[*at] = !RANDOM.contains(&node.op)
            && node.takes().all(|name| match names.0.get(name) {
                Some(Source::Node(before)) => constant[*before],
                Some(Source::Constant) => true,
                Some(Source::Input) | None => false,
            });
    }
    constant
}
