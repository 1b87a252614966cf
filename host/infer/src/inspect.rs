//! A model as people see it: a table of its layers, and a drawing.

mod draw;

use crate::graph::{CutPoint, Graph, Layer};
use crate::{Dim, TensorInfo};
use karman_types::format_bytes;
use std::fmt;

/// One layer, in words.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Row {
    /// Its name.
    pub layer: String,
    /// Its operators.
    pub op: String,
    /// What it gives: `f32 [N, 64, 56, 56]`; several joined.
    pub output: String,
    /// Weights.
    pub parameters: u64,
    /// Multiply-accumulates.
    pub macs: u64,
    /// Bytes of what it gives.
    pub bytes: u64,
    /// Whether the caller gets what it gives.
    pub is_output: bool,
    /// What crosses a cut after it; `None` where no cut is offered, and after the last.
    pub cut: Option<Crossing>,
}

/// What crosses a cut.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Crossing {
    /// Tensors.
    pub tensors: usize,
    /// Their bytes together.
    pub bytes: u64,
    /// Whether nothing smaller crosses before it, so that waiting for it pays: with one fast and one slow side, the best cut is
    /// one of these.
    pub is_candidate: bool,
}

/// What `karman model inspect` shows. Printed, it is the table; [`Inspection::to_svg`] draws it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// One for each layer, in order.
    pub rows: Vec<Row>,
    /// What crosses before the first layer: the inputs.
    pub start: Option<Crossing>,
    /// The inputs.
    pub inputs: Vec<TensorInfo>,
    /// The outputs.
    pub outputs: Vec<TensorInfo>,
    /// Weights, each counted once.
    pub parameters: u64,
    /// Multiply-accumulates of one run.
    pub macs: u64,
    /// The items of that run.
    pub batch: u32,
    /// What leads from one layer to others: where from (`None` from outside) and where to.
    links: Vec<(Option<usize>, Vec<usize>)>,
}

impl Inspection {
    /// Looks at a graph, at a batch of this size.
    pub fn new(graph: &Graph, batch: u32) -> Self {
        let layers = graph.layers();
        let mut crossings = vec![None; layers.layers.len() + 1];
        let mut least = u64::MAX;
        for point in layers.cut_points(graph) {
            let crossing = Crossing::of(&point, batch, least);
            least = least.min(crossing.bytes);
            crossings[point.after] = Some(crossing);
        }
        let mut made: Vec<Vec<usize>> = vec![Vec::new(); layers.layers.len()];
        for edge in &layers.edges {
            edge.from.iter().for_each(|from| made[*from].push(edge.edge));
        }
        let rows = layers.layers.iter().zip(&made).zip(&crossings[1..]);
        let infos = |edges: &[usize]| {
            edges
                .iter()
                .map(|edge| graph.edges()[*edge].info.clone())
                .collect()
        };
        Self {
            rows: rows
                .map(|((layer, made), cut)| Row::of(graph, layer, made, *cut, batch))
                .collect(),
            start: crossings[0],
            inputs: infos(graph.inputs()),
            outputs: infos(graph.outputs()),
            parameters: graph.parameters(),
            macs: graph.macs().at(batch),
            batch,
            links: layers
                .edges
                .into_iter()
                .map(|edge| (edge.from, edge.to))
                .collect(),
        }
    }

    /// A drawing of the layers with every cut between them, as an SVG file. It refers to nothing outside.
    pub fn to_svg(&self) -> String {
        draw::svg(self)
    }
}

impl Crossing {
    fn of(point: &CutPoint, batch: u32, least: u64) -> Self {
        let bytes = point.bytes.at(batch);
        Self {
            tensors: point.tensors,
            bytes,
            is_candidate: bytes < least,
        }
    }
}

impl Row {
    fn of(graph: &Graph, layer: &Layer, made: &[usize], cut: Option<Crossing>, batch: u32) -> Self {
        let edges = made.iter().map(|edge| &graph.edges()[*edge]);
        Self {
            layer: layer.name.clone(),
            op: layer.op.clone(),
            output: edges
                .clone()
                .map(|edge| shape(&edge.info))
                .collect::<Vec<_>>()
                .join(", "),
            parameters: layer.parameters,
            macs: layer.macs.at(batch),
            bytes: edges
                .map(|edge| edge.bytes().at(batch))
                .fold(0, u64::saturating_add),
            is_output: made.iter().any(|edge| graph.edges()[*edge].is_output),
            cut,
        }
    }
}

/// A tensor without its name.
fn shape(info: &TensorInfo) -> String {
    let text = info.to_string();
    text.strip_prefix(&info.name)
        .unwrap_or(&text)
        .trim_start()
        .to_owned()
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = vec![
            [
                "",
                "LAYER",
                "OPERATORS",
                "OUTPUT",
                "WEIGHTS",
                "MACS",
                "BYTES OUT",
                "CUT AFTER",
            ]
            .map(str::to_owned),
        ];
        for (at, row) in self.rows.iter().enumerate() {
            table.push([
                (at + 1).to_string(),
                row.layer.clone(),
                row.op.clone(),
                row.output.clone(),
                count(row.parameters),
                count(row.macs),
                format_bytes(row.bytes),
                row.cut.map(|cut| cut.to_string()).unwrap_or_default(),
            ]);
        }
        let mut widths = [0; 8];
        for row in &table {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &table {
            let cells = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(column, (cell, width))| match column {
                    0 | 4..=6 => format!("{cell:>width$}"),
                    _ => format!("{cell:<width$}"),
                });
            writeln!(f, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        write!(f, "{}", self.summary())
    }
}

impl fmt::Display for Crossing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_candidate { "* " } else { "" };
        match self.tensors {
            1 => write!(f, "{mark}{}", format_bytes(self.bytes)),
            n => write!(f, "{mark}{} in {n} tensors", format_bytes(self.bytes)),
        }
    }
}

impl Inspection {
    fn summary(&self) -> String {
        // Names come from the file, so that they may hold anything.
        let text = |info: &TensorInfo| info.to_string().replace(char::is_control, " ");
        let list = |infos: &[TensorInfo]| infos.iter().map(text).collect::<Vec<_>>().join(", ");
        let open = |info: &TensorInfo| matches!(info.dims.as_deref(), Some([Dim::Any(_), ..]));
        let is_open = self.inputs.iter().any(open);
        let batch = match is_open {
            true => format!(", for a batch of {}", self.batch),
            false => String::new(),
        };
        let places = self.rows.iter().rev().skip(1);
        let (all, uncut) = (places.len(), places.filter(|row| row.cut.is_none()).count());
        let advice = match is_open && uncut > 0 {
            true => format!(
                "\n{uncut} of {all} places have no cut: what the model computes of its batch as it runs crosses them, until --shape gives the batch a size"
            ),
            false => String::new(),
        };
        format!(
            "{} layers, {} weights, {} multiply-accumulates{batch}: {} -> {}{advice}",
            self.rows.len(),
            count(self.parameters),
            count(self.macs),
            list(&self.inputs),
            list(&self.outputs)
        )
    }
}

/// A number with its digits in threes.
fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_come_in_threes() {
        assert_eq!(
            [0, 999, 1000, 25_557_032].map(count),
            ["0", "999", "1,000", "25,557,032"]
        );
    }
}
