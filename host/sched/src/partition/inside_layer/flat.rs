//! The published split: kernels and neurons in flat order (Lu et al., arXiv 2605.09357).
//!
//! The output of a layer is counted channel by channel, row by row, column by column; each board owns the next
//! `ceil(n / sum of portions)` elements for each of its portions. So it owns some kernels whole and at most two in part; of a
//! fully connected layer some neurons. [`touched`] is the input map of a board; [`FlatPlan::stages`] has it in run-length form
//! from the side of those who send: so many elements to these boards, so many to those.

use super::PlanError;
use karman_tensor::quantised::{Layer, Operator};
use karman_tensor::split::flat::{FlatShare, FlatStage, Phase, Stretch};
use std::ops::Range;

/// The published split of a network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FlatPlan {
    /// What each board does, layer by layer. Additions need no stage: the shares of both sides match.
    pub stages: Vec<FlatStage>,
}

impl FlatPlan {
    /// The split among boards that take these portions.
    ///
    /// # Errors
    /// [`PlanError::Boards`] when there are none or more than a target set has bits, [`PlanError::Portions`] when they are all 0,
    /// [`PlanError::NoLayers`].
    pub fn new(layers: &[Layer], portions: &[u32]) -> Result<Self, PlanError> {
        let boards = portions.len();
        let most = super::board::MOST_BOARDS;
        if !(1..=most).contains(&boards) {
            return Err(PlanError::Boards { count: boards, most });
        }
        if portions.iter().all(|portion| *portion == 0) {
            let portions = portions.to_vec();
            return Err(PlanError::Portions { portions, boards });
        }
        if layers.is_empty() {
            return Err(PlanError::NoLayers);
        }
        let mut stages: Vec<FlatStage> = Vec::new();
        for (index, layer) in layers.iter().enumerate() {
            if matches!(layer.operator(), Operator::Add { .. }) {
                continue;
            }
            let shares: Vec<FlatShare> = owned(layer.output().elements(), portions)
                .into_iter()
                .map(|own| FlatShare {
                    touched: touched(layer, &own),
                    own,
                })
                .collect();
            let producers: Vec<Range<usize>> = match stages.last() {
                None => std::iter::once(0..layer.input().elements()).collect(),
                Some(before) => before.shares.iter().map(|share| share.own.clone()).collect(),
            };
            let needed: Vec<_> = shares.iter().map(|share| values(layer, &share.touched)).collect();
            let phases = producers
                .iter()
                .map(|producer| phases(producer, &needed))
                .collect();
            stages.push(FlatStage {
                layer: index,
                shares,
                phases,
            });
        }
        Ok(Self { stages })
    }

    /// Bytes of input, padding included, and of output that a board needs for a stage.
    pub fn in_and_out(&self, stage: usize, board: usize) -> (usize, usize) {
        let share = &self.stages[stage].shares[board];
        (
            share.touched.iter().map(|stretch| stretch.count).sum(),
            share.own.len(),
        )
    }

    /// The most bytes of input and output of one stage, on the board that needs most.
    pub fn peak(&self) -> usize {
        let sizes = self.sizes().map(|(input, output)| input + output);
        sizes.max().unwrap_or(0)
    }

    /// Bytes of input of all stages on all boards.
    pub fn delivered(&self) -> usize {
        self.sizes().map(|(input, _)| input).sum()
    }

    fn sizes(&self) -> impl Iterator<Item = (usize, usize)> {
        let stages = self.stages.iter().enumerate();
        stages
            .flat_map(move |(stage, at)| (0..at.shares.len()).map(move |board| self.in_and_out(stage, board)))
    }
}

/// Which elements each board owns.
pub fn owned(elements: usize, portions: &[u32]) -> Vec<Range<usize>> {
    let sum: usize = portions.iter().map(|portion| *portion as usize).sum();
    let unit = elements.div_ceil(sum.max(1));
    let mut end = 0;
    let next = |portion: &u32| {
        let start = end;
        end = elements.min(start + unit * *portion as usize);
        start..end
    };
    portions.iter().map(next).collect()
}

/// The padded input that elements of the output touch, in flat order.
pub fn touched(layer: &Layer, own: &Range<usize>) -> Vec<Stretch> {
    let padding = layer.padding();
    let (window, stride, groups) = match *layer.operator() {
        Operator::Convolution {
            window,
            stride,
            groups,
            ..
        } => (window, stride, groups),
        Operator::AveragePool => {
            let input = layer.input();
            ([input.height, input.width], 1, input.channels)
        }
        Operator::Add { .. } => ([1, 1], 1, layer.input().channels),
        Operator::MaxPool { window, stride, .. } => (window, stride, layer.input().channels),
    };
    let (height, width) = (
        layer.input().height + 2 * padding,
        layer.input().width + 2 * padding,
    );
    let cells = layer.output().height * layer.output().width;
    let (inputs, outputs) = (layer.input().channels / groups, layer.output().channels / groups);
    let mut stretches = Vec::new();
    for group in 0..groups {
        // The positions of which the board owns an output of this group, and what lies under their windows.
        let channels = group * outputs..(group + 1) * outputs;
        let parts = channels.filter_map(|channel| {
            let start = own.start.max(channel * cells);
            let end = own.end.min((channel + 1) * cells);
            (start < end).then(|| start - channel * cells..end - channel * cells)
        });
        let mut parts: Vec<Range<usize>> = parts.collect();
        // Kernels that are whole touch the same.
        parts.dedup();
        if parts.is_empty() {
            continue;
        }
        let mut mask = vec![false; height * width];
        for position in parts.into_iter().flatten() {
            let row = position / layer.output().width * stride;
            let column = position % layer.output().width * stride;
            for dy in 0..window[0] {
                mask[(row + dy) * width + column..][..window[1]].fill(true);
            }
        }
        for channel in group * inputs..(group + 1) * inputs {
            for (row, mask) in mask.chunks_exact(width).enumerate() {
                let mut column = 0;
                for run in mask.chunk_by(|a, b| a == b) {
                    if run[0] {
                        stretches.push(Stretch {
                            channel,
                            row,
                            column,
                            count: run.len(),
                        });
                    }
                    column += run.len();
                }
            }
        }
    }
    stretches
}

/// What a board touches of the input itself, without the padding, as ranges of flat indices.
fn values(layer: &Layer, touched: &[Stretch]) -> Vec<Range<usize>> {
    let (input, padding) = (layer.input(), layer.padding());
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for stretch in touched {
        if !(padding..padding + input.height).contains(&stretch.row) {
            continue;
        }
        let bound = |column: usize| column.clamp(padding, padding + input.width) - padding;
        let row = (stretch.channel * input.height + stretch.row - padding) * input.width;
        let range = row + bound(stretch.column)..row + bound(stretch.column + stretch.count);
        match ranges.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => ranges.push(range),
        }
    }
    ranges
}

/// Where the elements of a producer go, in run-length form.
fn phases(producer: &Range<usize>, needed: &[Vec<Range<usize>>]) -> Vec<Phase> {
    // What changes at which element: boards that begin or cease to need it.
    let mut changes: Vec<(usize, u128)> = vec![(producer.start, 0), (producer.end, 0)];
    for (board, ranges) in needed.iter().enumerate() {
        for range in ranges {
            let (start, end) = (range.start.max(producer.start), range.end.min(producer.end));
            if start < end {
                changes.extend([(start, 1 << board), (end, 1 << board)]);
            }
        }
    }
    changes.sort_unstable();
    let mut phases: Vec<Phase> = Vec::new();
    let mut targets = 0u128;
    for pair in changes.windows(2) {
        targets ^= pair[0].1;
        let count = pair[1].0 - pair[0].0;
        match phases.last_mut() {
            _ if count == 0 => {}
            Some(last) if last.targets == targets => last.count += count,
            _ => phases.push(Phase { count, targets }),
        }
    }
    phases
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_tensor::quantised::{Extent, mobilenet_v2};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn peaks_are_the_published_ones() {
        // MobileNetV2 on 1 to 8 equal boards, computed from the authors' rule; the study compares all figures of it.
        let peaks = [
            387_168, 200_704, 150_528, 125_440, 116_660, 116_032, 115_584, 115_248,
        ];
        let layers = mobilenet_v2(112, 1000).unwrap();
        for (boards, peak) in (1..).zip(peaks) {
            assert_eq!(
                FlatPlan::new(&layers, &vec![1; boards]).unwrap().peak(),
                peak,
                "{boards} boards"
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_board_gets_exactly_what_its_outputs_touch(
            channels in 1usize..4, side in 3usize..8, window in 1usize..4, stride in 1usize..4, depthwise: bool,
            portions in prop::collection::vec(1u32..4, 1..5), from in prop::collection::vec(1u32..4, 1..5),
        ) {
            let input = Extent::new(channels, side, side).unwrap();
            let (outputs, groups) = if depthwise { (channels, channels) } else { (5, 1) };
            let layer = Layer::convolution(input, outputs, [window, window], stride, window / 2, groups).unwrap();
            let output = layer.output();
            let shares = owned(output.elements(), &portions);
            prop_assert_eq!(shares.iter().map(Range::len).sum::<usize>(), output.elements());
            let maps: Vec<_> = shares.iter().map(|own| values(&layer, &touched(&layer, own))).collect();
            // Element by element, from the definition of a convolution.
            for (own, map) in shares.iter().zip(&maps) {
                let mut expected = BTreeSet::new();
                for element in own.clone() {
                    let (channel, position) = (element / output.width / output.height, element % (output.width * output.height));
                    let inputs = if depthwise { channel..channel + 1 } else { 0..channels };
                    for channel in inputs {
                        for (dy, dx) in (0..window).flat_map(|dy| (0..window).map(move |dx| (dy, dx))) {
                            let row = (position / output.width * stride + dy).checked_sub(window / 2);
                            let column = (position % output.width * stride + dx).checked_sub(window / 2);
                            if let (Some(row), Some(column)) = (row, column) && row < side && column < side {
                                expected.insert((channel * side + row) * side + column);
                            }
                        }
                    }
                }
                let got: BTreeSet<usize> = map.iter().cloned().flatten().collect();
                prop_assert_eq!(got, expected);
            }
            // And the senders' run-length form says the same.
            for producer in owned(input.elements(), &from) {
                let mut element = producer.start;
                for phase in phases(&producer, &maps) {
                    for _ in 0..phase.count {
                        for (board, map) in maps.iter().enumerate() {
                            let needs = map.iter().any(|range| range.contains(&element));
                            prop_assert_eq!(phase.targets >> board & 1 == 1, needs);
                        }
                        element += 1;
                    }
                }
                prop_assert_eq!(element, producer.end);
            }
        }
    }

    #[test]
    fn portions_that_divide_nothing_are_refused() {
        let layers = mobilenet_v2(32, 10).unwrap();
        assert!(FlatPlan::new(&layers, &[]).is_err());
        assert!(FlatPlan::new(&layers, &[0, 0]).is_err());
        assert!(FlatPlan::new(&layers, &[1; 200]).is_err());
        assert!(FlatPlan::new(&[], &[1]).is_err());
    }
}
