use super::quantised::QuantisedGemm;
use super::{Describe, Words};
use crate::error::GpuError;
use half::f16;

/// Weights in groups, as [`QuantisedGemm`] takes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Quantised {
    /// The packed weights.
    pub weights: Words,
    /// A scale and a zero point per row and group.
    pub groups: Words,
}

impl Quantised {
    /// Packs weights, `shape.n` rows of `shape.k`: in each group, from the least to the largest in equal steps.
    ///
    /// # Errors
    /// [`GpuError::Kernel`] when the shape means nothing, or there are not as many weights.
    pub fn from_f32(shape: &QuantisedGemm, weights: &[f32]) -> Result<Self, GpuError> {
        shape.check()?;
        let (n, k, group) = (shape.n as usize, shape.k as usize, shape.group as usize);
        if weights.len() != n * k {
            let must = format!("{n} rows of {k} are {}", n * k);
            return Err(GpuError::kernel("quantised-gemm", "weights", weights.len(), must));
        }
        let mut packed = Self::empty(shape);
        for row in 0..n {
            for (number, values) in weights[row * k..][..k].chunks(group).enumerate() {
                let least = values.iter().copied().fold(0.0, f32::min);
                let most = values.iter().copied().fold(0.0, f32::max);
                let levels = ((1 << shape.bits) - 1) as f32;
                let scale = f16::from_f32(((most - least) / levels).max(f32::from(f16::MIN_POSITIVE)));
                let zero = (-least / scale.to_f32()).round().clamp(0.0, levels);
                packed.set_group(shape, row, number, scale, zero as u32);
                for (place, value) in values.iter().enumerate() {
                    let q = (value / scale.to_f32() + zero).round().clamp(0.0, levels);
                    packed.set(shape, row, number * group + place, q as u32);
                }
            }
        }
        Ok(packed)
    }

    fn empty(shape: &QuantisedGemm) -> Self {
        Self {
            weights: vec![0; shape.n as usize * shape.row_words()],
            groups: vec![0; shape.n as usize * shape.groups()],
        }
    }

    fn set(&mut self, shape: &QuantisedGemm, row: usize, k: usize, q: u32) {
        let shift = k % shape.per_word() * shape.bits as usize;
        self.weights[row * shape.row_words() + k / shape.per_word()] |= q << shift;
    }

    fn set_group(&mut self, shape: &QuantisedGemm, row: usize, group: usize, scale: f16, zero: u32) {
        self.groups[row * shape.groups() + group] = u32::from(scale.to_bits()) | zero << 16;
    }
}

/// The order of columns in a word of AWQ.
const AWQ_ORDER: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];

/// Weights of 4 bits as AWQ stores them: `qweight` is `k` by `n / 8`, `qzeros` groups by `n / 8`, both with the columns of a word
/// interleaved; `scales` groups by `n`.
///
/// # Errors
/// [`GpuError::Kernel`] when the shape is not theirs, or one has another length.
pub fn from_awq(
    shape: &QuantisedGemm,
    qweight: &[u32],
    qzeros: &[u32],
    scales: &[f16],
) -> Result<Quantised, GpuError> {
    check_import(shape, qweight.len(), shape.k as usize, qzeros, scales)?;
    let nibble = |words: &[u32], row: usize, column: usize| {
        let place = AWQ_ORDER
            .iter()
            .position(|order| *order == column % 8)
            .unwrap_or_default();
        words[row * (shape.n as usize / 8) + column / 8] >> (4 * place) & 15
    };
    Ok(import(
        shape,
        scales,
        |column, k| nibble(qweight, k, column),
        |column, group| nibble(qzeros, group, column),
    ))
}

/// Weights of 4 bits as GPTQ stores them, without reordering by activation: `qweight` is `k / 8` by `n`, `qzeros` groups by `n / 8`
/// with each zero point less one, `scales` groups by `n`.
///
/// # Errors
/// [`GpuError::Kernel`] when the shape is not theirs, or one has another length.
pub fn from_gptq(
    shape: &QuantisedGemm,
    qweight: &[u32],
    qzeros: &[u32],
    scales: &[f16],
) -> Result<Quantised, GpuError> {
    check_import(shape, qweight.len() * 8, shape.k as usize * 8, qzeros, scales)?;
    let n = shape.n as usize;
    Ok(import(
        shape,
        scales,
        |column, k| qweight[k / 8 * n + column] >> (4 * (k % 8)) & 15,
        |column, group| (qzeros[group * (n / 8) + column / 8] >> (4 * (column % 8)) & 15) + 1,
    ))
}

/// Whether a checkpoint's tensors have the lengths of the shape; `rows` words of `n / 8` are expected of the weights.
fn check_import(
    shape: &QuantisedGemm,
    words: usize,
    rows: usize,
    qzeros: &[u32],
    scales: &[f16],
) -> Result<(), GpuError> {
    shape.check()?;
    let n = shape.n as usize;
    let wrong = |field, value, must: String| Err(GpuError::kernel("quantised-gemm", field, value, must));
    if shape.bits != 4 {
        return wrong("bits", shape.bits as usize, "these layouts have 4".into());
    }
    if !n.is_multiple_of(8) {
        return wrong("n", n, "it is a multiple of 8".into());
    }
    if !shape.k.is_multiple_of(shape.group) {
        let must = format!("it is a multiple of the group, {}", shape.group);
        return wrong("k", shape.k as usize, must);
    }
    let expected = [
        ("qweight", words, rows * n / 8),
        ("qzeros", qzeros.len(), shape.groups() * n / 8),
        ("scales", scales.len(), shape.groups() * n),
    ];
    match expected.into_iter().find(|(_, given, wanted)| given != wanted) {
        Some((field, given, wanted)) => wrong(field, given, format!("this shape has {wanted}")),
        None => Ok(()),
    }
}

fn import(
    shape: &QuantisedGemm,
    scales: &[f16],
    weight: impl Fn(usize, usize) -> u32,
    zero: impl Fn(usize, usize) -> u32,
) -> Quantised {
    let mut packed = Quantised::empty(shape);
    for row in 0..shape.n as usize {
        for k in 0..shape.k as usize {
            packed.set(shape, row, k, weight(row, k));
        }
        for group in 0..shape.groups() {
            packed.set_group(
                shape,
                row,
                group,
                scales[group * shape.n as usize + row],
                zero(row, group),
            );
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n: u32, k: u32, bits: u32) -> QuantisedGemm {
        QuantisedGemm {
            m: 1,
            n,
            k,
            group: 32,
            bits,
        }
    }

    #[test]
    fn packed_weights_are_within_half_a_step() {
        let mut random = fastrand::Rng::with_seed(1);
        for bits in [4, 8] {
            let shape = shape(3, 70, bits);
            let weights: Vec<f32> = (0..3 * 70).map(|_| random.f32() * 2.0 - 0.7).collect();
            let packed = Quantised::from_f32(&shape, &weights).unwrap();
            let mut row = vec![0.0; 70];
            for n in 0..3 {
                shape.unpack(&packed.weights, &packed.groups, n, &mut row);
                for (k, value) in row.iter().enumerate() {
                    let (scale, _) = shape.scale(&packed.groups, n, k / 32);
                    // The zero point is rounded too.
                    assert!((value - weights[n * 70 + k]).abs() <= 1.01 * scale, "{bits} bits");
                }
            }
        }
    }

    /// Both layouts of the same weights are the same weights.
    #[test]
    fn checkpoints_of_awq_and_gptq_are_read() {
        let shape = shape(16, 64, 4);
        let (n, k) = (16, 64);
        let q = |column: usize, k: usize| ((column * 7 + k * 3) % 16) as u32;
        let zero = |column: usize, group: usize| ((column + 5 * group) % 15 + 1) as u32;
        let scales: Vec<f16> = (0..2 * n).map(|n| f16::from_f32(0.01 * (n + 1) as f32)).collect();
        let word = |nibbles: [u32; 8]| (0..8).fold(0, |word, place| word | nibbles[place] << (4 * place));
        let awq_row = |q: &dyn Fn(usize) -> u32| -> Vec<u32> {
            (0..n / 8)
                .map(|w| word(AWQ_ORDER.map(|column| q(8 * w + column))))
                .collect()
        };
        let awq: Vec<u32> = (0..k).flat_map(|k| awq_row(&|column| q(column, k))).collect();
        let awq_zeros: Vec<u32> = (0..2)
            .flat_map(|group| awq_row(&|column| zero(column, group)))
            .collect();
        let eight = [0, 1, 2, 3, 4, 5, 6, 7];
        let gptq: Vec<u32> = (0..k / 8)
            .flat_map(|r| (0..n).map(move |column| word(eight.map(|i| q(column, 8 * r + i)))))
            .collect();
        let gptq_zeros: Vec<u32> = (0..2)
            .flat_map(|group| (0..n / 8).map(move |w| word(eight.map(|i| zero(8 * w + i, group) - 1))))
            .collect();
        let from_awq = from_awq(&shape, &awq, &awq_zeros, &scales).unwrap();
        assert_eq!(from_awq, from_gptq(&shape, &gptq, &gptq_zeros, &scales).unwrap());
        for (column, inner) in [(0, 0), (3, 9), (13, 63)] {
            assert_eq!(shape.weight(&from_awq.weights, column, inner), q(column, inner));
            let (scale, point) = shape.scale(&from_awq.groups, column, inner / 32);
            assert_eq!(scale, scales[inner / 32 * n + column].to_f32());
            assert_eq!(point, zero(column, inner / 32) as f32);
        }
        assert!(from_gptq(&shape, &gptq[1..], &gptq_zeros, &scales).is_err());
    }

    #[test]
    fn what_is_wrong_with_a_checkpoint_is_named() {
        for (shape, wrong) in [
            (shape(16, 70, 4), "k"),
            (shape(17, 64, 4), "n"),
            (shape(16, 64, 8), "bits"),
            (shape(16, 64, 4), "qweight"),
        ] {
            for refused in [from_awq(&shape, &[], &[], &[]), from_gptq(&shape, &[], &[], &[])] {
                let refused = refused.unwrap_err();
                assert!(
                    matches!(&refused, GpuError::Kernel { field, .. } if field == wrong),
                    "{refused}"
                );
            }
        }
    }
}
