//! Shapes that are known beforehand, as constants. An exporter that left dimensions open has the model ask for its shapes as it runs; once
//! they are closed the answers are known, and what depends on them crosses no cut.

use super::operation::Attribute;
use super::order::{Names, live, order};
use super::raw::{Raw, RawNode};
use super::shapes::Known;
use crate::outline::Outline;
use crate::screen::only;
use crate::weights::spans;
use crate::wire::{Value, Writer};
use crate::{Dim, InferError, ModelLimits};
use std::collections::BTreeMap;

/// ONNX's number of 64-bit whole numbers.
const I64: i64 = 7;

/// The model with what each `Shape` gives in the place of the node, where all dimensions of its inputs are closed. None where there is
/// nothing to replace, or where it is not read as a graph: then nobody cuts it.
pub(crate) fn settled(file: &[u8], limits: &ModelLimits) -> Option<Vec<u8>> {
    let answers = settle(file, limits);
    answers.ok().flatten()
}

fn settle(file: &[u8], limits: &ModelLimits) -> Result<Option<Vec<u8>>, InferError> {
    let outline = Outline::read(file, limits)?;
    let is_closed = |dims: &Vec<Dim>| dims.iter().all(|dim| matches!(dim, Dim::Fixed(_)));
    if !outline
        .inputs
        .iter()
        .all(|input| input.dims.as_ref().is_some_and(is_closed))
    {
        return Ok(None);
    }
    let raw = Raw::read(file)?;
    let names = Names::of(&raw, &outline)?;
    let live = live(&raw, &outline, &names, &order(&raw, &names)?)?;
    if !live.iter().any(|at| raw.nodes[*at].op == "Shape") {
        return Ok(None);
    }
    let known = Known::infer(&raw, &outline, &live, limits)?;
    let mut answers: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for node in live.iter().map(|at| &raw.nodes[*at]) {
        let is_given = |name: &&str| !outline.outputs.iter().any(|output| output.name == **name);
        if let (Some(answer), Some(name)) = (answer(node, &known)?, node.makes().next().filter(is_given)) {
            answers.insert(name, answer);
        }
    }
    match answers.is_empty() {
        true => Ok(None),
        false => replaced(file, &answers).map(Some),
    }
}

/// What a `Shape` gives, where that is known: its `start` and `end` count as in a slice of Python.
fn answer(node: &RawNode<'_>, known: &Known<'_>) -> Result<Option<Vec<i64>>, InferError> {
    let domain = only(node.body, 7)?.map(|domain| Value::Bytes(domain).text());
    let is_standard = matches!(domain.transpose()?.unwrap_or_default(), "" | "ai.onnx");
    let (true, "Shape", [of]) = (is_standard, node.op, &node.inputs[..]) else {
        return Ok(None);
    };
    let Ok(fact) = known.get(of) else {
        return Ok(None);
    };
    let attributes = Attribute::all(node.body)?;
    let rank = fact.one.len() as i64;
    let place = |name: &str, usual: i64| {
        let said = attributes.get(name).and_then(|said| said.numbers.first());
        let place = said.copied().unwrap_or(usual);
        let from_front = if place < 0 {
            place.saturating_add(rank)
        } else {
            place
        };
        from_front.clamp(0, rank) as usize
    };
    let (start, end) = (place("start", 0), place("end", rank));
    let dims = fact.one.get(start..end).unwrap_or_default();
    Ok(Some(dims.iter().copied().map(i64::from).collect()))
}

/// The model with these tensors as constants, in the place of the nodes that make them.
fn replaced(file: &[u8], answers: &BTreeMap<&str, Vec<i64>>) -> Result<Vec<u8>, InferError> {
    let mut model = Writer::default();
    for field in spans(file) {
        let (number, value, span) = field?;
        if number != 7 {
            model.0.extend_from_slice(span);
            continue;
        }
        let mut graph = Writer::default();
        for field in spans(value.bytes()?) {
            let (number, value, span) = field?;
            let made = match number {
                1 => RawNode::read(value.bytes()?)?.makes().next(),
                _ => None,
            };
            if !made.is_some_and(|name| answers.contains_key(name)) {
                graph.0.extend_from_slice(span);
            }
        }
        for (name, answer) in answers {
            graph.message(5, |tensor| {
                let bytes: Vec<u8> = answer.iter().flat_map(|size| size.to_le_bytes()).collect();
                tensor.number(1, answer.len() as i64).number(2, I64);
                tensor.bytes(8, name).bytes(9, bytes);
            });
        }
        model.bytes(7, graph.0);
    }
    Ok(model.0)
}
