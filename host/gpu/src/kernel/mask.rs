use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Words, check_length};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher, StreamCipherSeek};
use serde::{Deserialize, Serialize};

/// The mask of a secure sum put on integers modulo 2³²: the key stream of ChaCha20 (RFC 8439) under the zero nonce, one word each.
///
/// Inputs `values` and `key` of 8 words; output `result`. The same stream as `karman_fed::secure` takes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Mask {
    /// Integers.
    pub length: u32,
    /// Takes the mask off instead.
    #[serde(default)]
    pub subtract: bool,
}

/// Words of a block of the stream.
const BLOCK: u32 = 16;

impl Mask {
    fn combine(&self, value: u32, mask: u32) -> u32 {
        match self.subtract {
            true => value.wrapping_sub(mask),
            false => value.wrapping_add(mask),
        }
    }
}

impl Describe for Mask {
    fn check(&self) -> Result<(), GpuError> {
        check_length("mask", "length", self.length)
    }

    fn arguments(&self) -> Vec<Argument> {
        let length = self.length as usize;
        vec![
            Argument::input("values", Element::U32, length),
            Argument::input("key", Element::U32, 8),
            Argument::output("result", Element::U32, length),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "mask",
            source: source!("mask", "each"),
            constants: vec![("SUBTRACT", u32::from(self.subtract))],
            parameters: vec![self.length],
            bindings: vec![0, 1, 2],
            threads: EACH,
            workgroups: each(u64::from(self.length.div_ceil(BLOCK))),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        const PART: usize = 1 << 14;
        let key: [u8; 32] = bytemuck::cast_slice::<u32, u8>(inputs[1])
            .try_into()
            .expect("8 words, as arguments() says");
        cpu.rows(&mut outputs[0], PART, |part, result| {
            let mut cipher = ChaCha20::new((&key).into(), &Default::default());
            cipher.seek(4 * (part * PART) as u64);
            cipher.apply_keystream(bytemuck::cast_slice_mut(result));
            for (result, value) in result.iter_mut().zip(&inputs[0][part * PART..]) {
                *result = self.combine(*value, *result);
            }
        });
    }

    /// Written out from the RFC: nothing of the library that the processor's path uses.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let blocks = (0..self.length.div_ceil(BLOCK)).flat_map(|counter| block(inputs[1], counter));
        let values = inputs[0]
            .iter()
            .zip(blocks)
            .map(|(value, mask)| f64::from(self.combine(*value, mask)));
        vec![Expected::plain(values.collect())]
    }

    fn tolerance(&self) -> f64 {
        0.0
    }

    fn operations(&self) -> u64 {
        u64::from(self.length)
    }
}

fn block(key: &[u32], counter: u32) -> [u32; 16] {
    let mut start = [0; 16];
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    start[4..12].copy_from_slice(key);
    start[12] = counter;
    let mut state = start;
    let mut quarter = |[a, b, c, d]: [usize; 4]| {
        for (to, by, on, turn) in [(a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)] {
            state[to] = state[to].wrapping_add(state[by]);
            state[on] = (state[on] ^ state[to]).rotate_left(turn);
        }
    };
    for _ in 0..10 {
        (0..4).for_each(|i| quarter([i, i + 4, i + 8, i + 12]));
        (0..4).for_each(|i| quarter([i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4]));
    }
    state
        .iter_mut()
        .zip(start)
        .for_each(|(word, start)| *word = word.wrapping_add(start));
    state
}
