//! The recorded layer tables: what each layer of a network weighs, makes and takes.

use anyhow::{Context, Result, ensure};
use karman_sched::partition::{Layer, LayerGraph, Producer, Tensor};
use std::path::Path;

/// The networks, by the names of their tables.
pub(crate) const MODELS: [&str; 3] = ["vgg16", "alexnet", "mobilenetv2"];

/// A row of `dnn-layers/NAME.csv`.
struct Row {
    name: String,
    parameters: u64,
    shape: String,
    output_bytes: u64,
    edge_ms: f64,
    cloud_ms: f64,
}

/// A network on edge, fog and cloud. The fog's times are the geometric mean of the other two; the skip connections of
/// MobileNetV2, which its table leaves out, are put back, for a cut inside a block has to carry them.
pub(crate) fn load(data: &Path, model: &str) -> Result<LayerGraph> {
    let path = data.join(format!("dnn-layers/{model}.csv"));
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "{} is missing; name the folder of the recorded data with --data",
            path.display()
        )
    })?;
    let rows: Vec<Row> = text
        .lines()
        .skip(1)
        .map(row)
        .collect::<Result<_>>()
        .with_context(|| model.to_string())?;
    ensure!(rows.len() > 2, "{} has no layers", path.display());
    let layers = rows.windows(2).map(|pair| {
        let (before, row) = (&pair[0], &pair[1]);
        let fog_ms = (row.edge_ms * row.cloud_ms).sqrt();
        let working = before.output_bytes + row.output_bytes;
        Layer::measured(
            &row.name,
            &[row.edge_ms, fog_ms, row.cloud_ms],
            row.parameters * 4,
            working,
        )
    });
    let tensors = rows.iter().enumerate().map(|(index, row)| {
        let mut to: Vec<usize> = if index + 1 < rows.len() {
            vec![index]
        } else {
            vec![]
        };
        // A block of three (widen, depthwise, narrow) adds its input to its output when they have one shape.
        if let Some(last) = rows.get(index + 3)
            && rows[index + 2].name.ends_with("_dw")
            && last.shape == row.shape
        {
            to.push(index + 2);
        }
        Tensor {
            from: index.checked_sub(1).map_or(Producer::Held(0), Producer::Layer),
            to,
            wanted_at: (index + 1 == rows.len()).then_some(0),
            bytes: row.output_bytes,
        }
    });
    let tensors = tensors.collect();
    Ok(LayerGraph::new(layers.collect(), tensors)?)
}

fn row(line: &str) -> Result<Row> {
    let fields: Vec<&str> = line.split(',').collect();
    ensure!(
        fields.len() == 9,
        "`{line}` has {} fields instead of 9",
        fields.len()
    );
    Ok(Row {
        name: fields[1].into(),
        parameters: fields[3].parse()?,
        shape: fields[4].into(),
        output_bytes: fields[5].parse()?,
        edge_ms: fields[6].parse()?,
        cloud_ms: fields[7].parse()?,
    })
}
