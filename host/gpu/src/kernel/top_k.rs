use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Source, Words, check_length, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// The numbers of largest magnitude of an update together with what earlier ones lost, and what is lost now: top-k with error feedback.
///
/// Inputs `update` and `lost`, both of `length` and finite. Outputs `indices`, ascending, and `values`, both of `keep`, and `residual` of
/// `length`: the sum of the inputs with 0 where a number was kept, which is `lost` the next time. Of equal magnitudes the one with the
/// lower index is kept. Values at their indices and the residual together are the sum, bit for bit, and no number of the residual is
/// larger than the least that is kept. Numbers below the normal ones (2⁻¹²⁶), given or summed, count as 0: devices differ on them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TopK {
    /// Numbers of an update.
    pub length: u32,
    /// Numbers that are kept: 1 to the length.
    pub keep: u32,
}

/// Numbers that one workgroup, or one thread of the processor, takes.
const PART: u32 = 16_384;

/// Magnitudes compare as integers when the sign is gone.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Values of a digit.
const DIGITS: usize = 256;

/// The digits of a magnitude from the first on: where each lies, and the bits of those before it.
const ROUNDS: [(u32, u32); 4] = [(24, 0), (16, 0xff00_0000), (8, 0xffff_0000), (0, 0xffff_ff00)];

/// Places of its buffers among the arguments.
const UPDATE: usize = 0;
const LOST: usize = 1;
const INDICES: usize = 2;
const VALUES: usize = 3;
const RESIDUAL: usize = 4;
const COUNTS: usize = 5;
const LEAST: usize = 6;
const TALLIES: usize = 7;

impl TopK {
    const fn parts(&self) -> u32 {
        self.length.div_ceil(PART)
    }

    /// The least magnitude that is kept, and how many of those that equal it are: found digit by digit. Means nothing when time is over.
    fn least(&self, cpu: &Cpu, sums: &[u32]) -> (u32, u32) {
        let (mut least, mut wanted) = (0, self.keep);
        for (shift, known) in ROUNDS {
            let mut counts = vec![[0u32; DIGITS]; self.parts() as usize];
            let pieces: Vec<_> = counts.iter_mut().zip(sums.chunks(PART as usize)).collect();
            cpu.pieces(pieces, |(counts, sums)| {
                for sum in sums {
                    let magnitude = sum & MAGNITUDE;
                    if magnitude & known == least {
                        counts[(magnitude >> shift & 255) as usize] += 1;
                    }
                }
            });
            let mut totals = [0; DIGITS];
            for counts in &counts {
                for (total, count) in totals.iter_mut().zip(counts) {
                    *total += count;
                }
            }
            let mut digit = DIGITS - 1;
            while digit > 0 && totals[digit] < wanted {
                wanted -= totals[digit];
                digit -= 1;
            }
            least |= (digit as u32) << shift;
        }
        (least, wanted)
    }
}

/// The bits of a number, or of 0 for one below the normal ones.
#[inline(always)]
const fn normal(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { 0 } else { bits }
}

#[inline(always)]
fn add(one: u32, two: u32) -> u32 {
    normal((f32::from_bits(normal(one)) + f32::from_bits(normal(two))).to_bits())
}

impl Describe for TopK {
    fn check(&self) -> Result<(), GpuError> {
        check_length("top-k", "length", self.length)?;
        if (1..=self.length).contains(&self.keep) {
            return Ok(());
        }
        let must = format!("it is from 1 to the length, {}", self.length);
        Err(GpuError::kernel("top-k", "keep", self.keep as usize, must))
    }

    fn arguments(&self) -> Vec<Argument> {
        let (length, keep) = (self.length as usize, self.keep as usize);
        let parts = self.parts() as usize;
        vec![
            Argument::input("update", Element::F32, length),
            Argument::input("lost", Element::F32, length),
            Argument::output("indices", Element::U32, keep),
            Argument::output("values", Element::F32, keep),
            Argument::output("residual", Element::F32, length),
            Argument::scratch("counts", DIGITS * parts),
            Argument::scratch("least", 2),
            Argument::scratch("tallies", 2 * parts),
        ]
    }

    /// The sum is made where the residual will be. Four rounds of counting find the least magnitude that is kept, as a radix sort
    /// would; each writes all that the next one reads, so that the passes may be run again.
    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        let (parts, one) = ([self.parts(), 1, 1], [1, 1, 1]);
        let (all, kept) = (each(u64::from(self.length)), each(u64::from(self.keep)));
        let pass = |source: Source, parameters: Vec<u32>, bindings: Vec<usize>, workgroups| Pass {
            name: "top-k",
            source,
            constants: vec![("PART", PART)],
            parameters,
            bindings,
            threads: EACH,
            workgroups,
        };
        let (length, keep) = (self.length, self.keep);
        let sum = source!("top_k_sum", "each");
        let mut passes = vec![pass(sum, vec![length], vec![UPDATE, LOST, RESIDUAL], all)];
        for (shift, known) in ROUNDS {
            let (count, pick) = (source!("top_k_count"), source!("top_k_pick"));
            let counted = vec![RESIDUAL, LEAST, COUNTS];
            passes.push(pass(count, vec![length, shift, known], counted, parts));
            let picked = vec![COUNTS, LEAST];
            passes.push(pass(pick, vec![self.parts(), shift, keep], picked, one));
        }
        let (tally, before) = (source!("top_k_tally"), source!("top_k_before"));
        let place = source!("top_k_place");
        let (take, clear) = (source!("top_k_take", "each"), source!("top_k_clear", "each"));
        let placed = vec![RESIDUAL, LEAST, TALLIES, INDICES];
        passes.extend([
            pass(tally, vec![length], vec![RESIDUAL, LEAST, TALLIES], parts),
            pass(before, vec![self.parts()], vec![TALLIES], one),
            pass(place, vec![length, keep], placed, parts),
            pass(take, vec![keep], vec![INDICES, RESIDUAL, VALUES], kept),
            pass(clear, vec![keep], vec![INDICES, RESIDUAL], kept),
        ]);
        passes
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        const WIDTH: usize = PART as usize;
        let [indices, values, residual] = outputs else {
            unreachable!("arguments() names the outputs")
        };
        cpu.rows(residual, WIDTH, |part, sums| {
            let (update, lost) = (&inputs[UPDATE][part * WIDTH..], &inputs[LOST][part * WIDTH..]);
            cpu.vectorised(|| {
                for ((sum, one), two) in sums.iter_mut().zip(update).zip(lost) {
                    *sum = add(*one, *two);
                }
            });
        });
        let (least, mut equals) = self.least(cpu, residual);
        let mut places = indices.iter_mut().zip(values);
        for (part, sums) in residual.chunks_mut(WIDTH).enumerate() {
            if cpu.is_late() {
                return;
            }
            for (number, sum) in sums.iter_mut().enumerate() {
                let magnitude = *sum & MAGNITUDE;
                if magnitude < least || magnitude == least && equals == 0 {
                    continue;
                }
                equals -= u32::from(magnitude == least);
                // There is a place for each, but where time was over while they were counted.
                let Some((index, value)) = places.next() else {
                    return;
                };
                *index = (part * WIDTH + number) as u32;
                *value = std::mem::take(sum);
            }
        }
    }

    /// By sorting, and with sums of double precision rounded once: that is what single precision has to give.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let exact = |value: f32| match value.abs() < f32::MIN_POSITIVE {
            true => 0.0,
            false => f64::from(value),
        };
        let sums = floats(inputs[UPDATE]).iter().zip(floats(inputs[LOST]));
        let sums = sums.map(|(update, lost)| exact((exact(*update) + exact(*lost)) as f32));
        let mut residual: Vec<f64> = sums.collect();
        let mut order: Vec<usize> = (0..residual.len()).collect();
        let keep = self.keep as usize;
        order.select_nth_unstable_by(keep - 1, |one, two| {
            let magnitudes = residual[*two].abs().total_cmp(&residual[*one].abs());
            magnitudes.then(one.cmp(two))
        });
        order.truncate(keep);
        order.sort_unstable();
        let values = order.iter().map(|index| std::mem::take(&mut residual[*index]));
        let values = Expected::plain(values.collect());
        let indices = order.iter().map(|index| *index as f64).collect();
        vec![Expected::plain(indices), values, Expected::plain(residual)]
    }

    fn tolerance(&self) -> f64 {
        0.0
    }

    fn operations(&self) -> u64 {
        u64::from(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::{Kernel, f32_words};
    use proptest::prelude::*;

    fn top_k(keep: u32, update: &[f32], lost: &[f32]) -> [Vec<f32>; 2] {
        let kernel = Kernel::TopK(TopK {
            length: update.len() as u32,
            keep,
        });
        let inputs = [f32_words(update), f32_words(lost)];
        let outputs = kernel.on_cpu(&Cpu::new(1), &[&inputs[0], &inputs[1]]).unwrap();
        let mut arrived = vec![0.0; update.len()];
        for (index, value) in outputs[0].iter().zip(floats(&outputs[1])) {
            arrived[*index as usize] = *value;
        }
        assert!(outputs[0].is_sorted_by(|one, two| one < two), "{outputs:?}");
        [arrived, floats(&outputs[2]).to_vec()]
    }

    #[test]
    fn of_equal_magnitudes_the_lower_index_is_kept() {
        let update = [1.0, -2.0, 2.0, 0.5, -2.0, 0.0];
        let [arrived, residual] = top_k(2, &update, &[0.0; 6]);
        assert_eq!(arrived, [0.0, -2.0, 2.0, 0.0, 0.0, 0.0]);
        assert_eq!(residual, [1.0, 0.0, 0.0, 0.5, -2.0, 0.0]);
    }

    #[test]
    fn numbers_below_the_normal_ones_count_as_nothing() {
        let [arrived, residual] = top_k(2, &[1e-40, 1.0, -1e-39], &[0.0, 0.0, 1e-39]);
        assert_eq!((arrived, residual), (vec![0.0, 1.0, 0.0], vec![0.0; 3]));
    }

    #[test]
    fn as_many_are_kept_as_there_are_at_most() {
        for (length, keep) in [(3, 0), (3, 4)] {
            let refused = TopK { length, keep }.check().unwrap_err().to_string();
            assert_eq!(
                refused,
                format!("top-k: keep is {keep}, but it is from 1 to the length, 3")
            );
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whole numbers are summed without rounding: nothing is lost over any number of updates, it only comes later.
        #[test]
        fn what_is_lost_comes_later(
            updates in proptest::collection::vec(proptest::collection::vec(-3i8..4, 40), 1..20),
            keep in 1u32..41,
        ) {
            let (mut arrived, mut sent, mut lost) = (vec![0.0; 40], vec![0.0; 40], vec![0.0; 40]);
            let add = |sums: &mut [f32], more: &[f32]| {
                sums.iter_mut().zip(more).for_each(|(sum, value)| *sum += value);
            };
            for update in updates {
                let update: Vec<f32> = update.into_iter().map(f32::from).collect();
                let [now, residual] = top_k(keep, &update, &lost);
                add(&mut sent, &update);
                add(&mut arrived, &now);
                lost = residual;
                let sizes = now.iter().map(|value| value.abs()).filter(|size| *size > 0.0);
                let least = sizes.fold(f32::MAX, f32::min);
                prop_assert!(lost.iter().all(|value| value.abs() <= least));
            }
            add(&mut arrived, &lost);
            prop_assert_eq!(sent, arrived);
        }
    }
}
