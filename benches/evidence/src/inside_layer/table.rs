//! The recorded tables of the published split, figure by figure.

use anyhow::{Context, Result, ensure};
use karman_sched::partition::inside_layer::flat::FlatPlan;
use karman_tensor::quantised::mobilenet_v2;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// Convolutions before the mean: the tables count these.
const LAYERS: usize = 52;

/// A figure that is not as recorded.
#[derive(Debug, Serialize)]
pub(super) struct Difference {
    figure: String,
    recorded: u64,
    computed: u64,
}

/// The bytes of input and output of the worst layer on the worst board.
pub(super) fn peak(side: usize, boards: usize) -> Result<usize> {
    Ok(FlatPlan::new(&mobilenet_v2(side, 1000)?, &vec![1; boards])?.peak())
}

/// What the flat split gives otherwise than the recorded tables for pictures of this side.
pub(super) fn differences(folder: &Path, side: usize) -> Result<Vec<Difference>> {
    let layers = mobilenet_v2(side, 1000)?;
    let peaks = rows(&folder.join(format!("peak_activation_ram_{side}.csv")))?;
    let first_board = rows(&folder.join(format!("per_layer_worker0_{side}.csv")))?;
    ensure!(
        peaks.len() == 8 && first_board.len() == 8 * LAYERS,
        "tables of 8 numbers of boards are expected"
    );
    let mut differences = Vec::new();
    for row in peaks {
        let [boards, peak, layer, input, output, _weights, total] = row[..] else {
            anyhow::bail!("a row of 7 figures is expected, not {row:?}");
        };
        let plan = FlatPlan::new(&layers, &vec![1; boards as usize])?;
        let sizes = |stage| (0..boards as usize).map(move |board| (stage, board));
        let sizes: Vec<_> = (0..LAYERS)
            .flat_map(sizes)
            .map(|(stage, board)| (stage, plan.in_and_out(stage, board)))
            .collect();
        // Of equal ones the first.
        let worst = sizes
            .iter()
            .rev()
            .max_by_key(|(_, (input, output))| input + output);
        let (stage, (worst_in, worst_out)) = *worst.context("there are layers")?;
        let delivered: usize = sizes.iter().map(|(_, (input, _))| input).sum();
        let mut compare = |name: &str, recorded: u64, computed: usize| {
            if recorded != computed as u64 {
                differences.push(Difference {
                    figure: format!("{name}, {boards} boards"),
                    recorded,
                    computed: computed as u64,
                });
            }
        };
        compare("peak", peak, worst_in + worst_out);
        compare("layer of the peak", layer, stage);
        compare("input at the peak", input, worst_in);
        compare("output at the peak", output, worst_out);
        compare("sum of inputs", total, delivered);
        for row in first_board.iter().filter(|row| row[0] == boards) {
            let [_, layer, input, output] = row[..] else {
                anyhow::bail!("a row of 4 figures is expected, not {row:?}");
            };
            let (computed_in, computed_out) = plan.in_and_out(layer as usize, 0);
            compare(&format!("input of layer {layer}"), input, computed_in);
            compare(&format!("output of layer {layer}"), output, computed_out);
        }
    }
    Ok(differences)
}

fn rows(file: &Path) -> Result<Vec<Vec<u64>>> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let row = |line: &str| line.split(',').map(|figure| Ok(figure.trim().parse()?)).collect();
    text.lines().skip(1).map(row).collect()
}
