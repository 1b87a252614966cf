//! The bytes of each encoding, behind the head of a frame.

use super::{EncodeError, Encoding, non_zero, palette};
use crate::Shape;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// Half a unit in the last place of an `f16`, relative; and below its normal numbers, absolute.
const F16_RELATIVE: f32 = 1.0 / 2048.0;
const F16_ABSOLUTE: f32 = 2.98e-8;

/// The most that an index of top-k takes: a gap of 32 bits, 7 of them in a byte.
const MOST_GAP_BYTES: usize = 5;

pub(super) fn write(shape: Shape, values: &[f32], encoding: Encoding) -> Result<Vec<u8>, EncodeError> {
    match encoding {
        Encoding::F32 => Ok(bytemuck::cast_slice(values).to_vec()),
        Encoding::F16 => halves(values),
        Encoding::Int8 => Ok(eighths(shape, values)),
        Encoding::TopK(share) => largest(values, share),
        Encoding::NonZero => Ok(non_zero::write(values)),
        Encoding::Palette => palette::write(values, row(shape, values.len())),
    }
}

/// Reads what [`write()`] has written. The bytes may come from anyone.
pub(super) fn read(
    shape: Shape,
    count: usize,
    body: &[u8],
    encoding: Encoding,
) -> Result<Vec<f32>, EncodeError> {
    let fits = match encoding {
        Encoding::TopK(_) | Encoding::NonZero | Encoding::Palette => true,
        _ => body.len() == most_bytes(shape, count, encoding),
    };
    if !fits {
        return Err(EncodeError::Malformed("it does not have the bytes of its shape"));
    }
    let values: Vec<f32> = match encoding {
        Encoding::F32 => floats(body).collect(),
        Encoding::F16 => {
            let (halves, _) = body.as_chunks();
            let halves: Vec<u16> = halves.iter().map(|half| u16::from_le_bytes(*half)).collect();
            halves.reinterpret_cast::<f16>().to_f32_vec()
        }
        Encoding::Int8 => {
            let (scales, levels) = body.split_at(4 * channels(shape));
            let row = row(shape, count);
            let mut values = Vec::with_capacity(count);
            for (row, scale) in levels.chunks(row).zip(floats(scales)) {
                values.extend(row.iter().map(|level| f32::from(*level as i8) * scale));
            }
            values
        }
        Encoding::TopK(share) => scattered(count, body, share)?,
        Encoding::NonZero => non_zero::read(count, body)?,
        Encoding::Palette => palette::read(count, channels(shape), body)?,
    };
    match values.iter().all(|value| value.is_finite()) {
        true => Ok(values),
        false => Err(EncodeError::Malformed("it holds a number that is not finite")),
    }
}

/// The bytes of an array of this shape: exactly, but for those whose bytes go by their numbers.
pub(super) fn most_bytes(shape: Shape, count: usize, encoding: Encoding) -> usize {
    match encoding {
        Encoding::F32 => 4 * count,
        Encoding::F16 => 2 * count,
        Encoding::Int8 => 4 * channels(shape) + count,
        Encoding::TopK(share) => kept(count, share) * (4 + MOST_GAP_BYTES),
        Encoding::NonZero => non_zero::bit_bytes(count) + 4 * count,
        Encoding::Palette => palette::most_bytes(count, row(shape, count)),
    }
}

/// How far a number may lie from the decoded one.
pub(super) fn error_bound(shape: Shape, decoded: &[f32], encoding: Encoding) -> f32 {
    let largest = |values: &[f32]| values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    match encoding {
        Encoding::F32 | Encoding::NonZero | Encoding::Palette => 0.0,
        // The number itself may be larger than the decoded one, by as much again.
        Encoding::F16 => largest(decoded) * F16_RELATIVE * (1.0 + F16_RELATIVE) + F16_ABSOLUTE,
        Encoding::Int8 => {
            let row = row(shape, decoded.len());
            let most = decoded.chunks(row).map(largest).fold(0.0, f32::max);
            // Half of a scale, with the roundings of the division and the product; below the normal numbers all become 0.
            most / 254.0 * 1.0001 + f32::MIN_POSITIVE * 128.0
        }
        Encoding::TopK(share) if kept(decoded.len(), share) >= decoded.len() => 0.0,
        Encoding::TopK(share) => {
            let mut kept_values: Vec<f32> = decoded.iter().map(|value| value.abs()).collect();
            kept_values.sort_unstable_by(|a, b| b.total_cmp(a));
            kept_values
                .get(kept(decoded.len(), share).saturating_sub(1))
                .copied()
                .unwrap_or(0.0)
        }
    }
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let (floats, _) = bytes.as_chunks::<4>();
    floats.iter().map(|float| f32::from_le_bytes(*float))
}

fn halves(values: &[f32]) -> Result<Vec<u8>, EncodeError> {
    let mut halves = vec![f16::ZERO; values.len()];
    halves.convert_from_f32_slice(values);
    match halves.iter().position(|half| half.is_infinite()) {
        Some(index) => Err(EncodeError::TooLarge {
            index,
            value: values[index],
        }),
        None => Ok(bytemuck::cast_slice(&halves).to_vec()),
    }
}

/// The rows that have a scale of their own.
fn channels(shape: Shape) -> usize {
    match shape.dims() {
        [rows, _, ..] if !shape.dims().contains(&0) => *rows as usize,
        _ => 1,
    }
}

/// The numbers of one of them, of so many.
fn row(shape: Shape, count: usize) -> usize {
    (count / channels(shape)).max(1)
}

/// Scales first, then the levels of all channels.
fn eighths(shape: Shape, values: &[f32]) -> Vec<u8> {
    let channels = channels(shape);
    let row = row(shape, values.len());
    let mut scales = Vec::with_capacity(4 * channels + values.len());
    let mut levels = Vec::with_capacity(values.len());
    for row in values.chunks(row) {
        let most = row.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let scale = most / 127.0;
        // A scale below the normal numbers has too few digits left to divide by.
        let scale = if scale < f32::MIN_POSITIVE { 0.0 } else { scale };
        scales.extend_from_slice(&scale.to_le_bytes());
        match scale {
            0.0 => levels.resize(levels.len() + row.len(), 0),
            _ => levels.extend(row.iter().map(|value| level(value / scale))),
        }
    }
    scales.resize(4 * channels, 0);
    scales.extend_from_slice(&levels);
    scales
}

/// The nearest whole number to one between -127 and 127, the even one of two, as a byte. Beside a number this large only whole ones have a
/// place, so that the addition rounds and the last byte is the result; it takes no branch and no call, and many at once.
fn level(scaled: f32) -> u8 {
    const WHOLE: f32 = 1.5 * (1 << 23) as f32;
    (scaled + WHOLE).to_bits() as u8
}

/// How many numbers top-k keeps.
fn kept(count: usize, share: u16) -> usize {
    (count * usize::from(share)).div_ceil(1000).min(count)
}

/// For each number that is kept, in order of position: the gap to the one before (LEB128), and its value.
fn largest(values: &[f32], share: u16) -> Result<Vec<u8>, EncodeError> {
    if !(1..=1000).contains(&share) {
        return Err(EncodeError::Share(share));
    }
    let kept = kept(values.len(), share);
    let mut order: Vec<u32> = (0..values.len() as u32).collect();
    if kept < order.len() {
        // Among equals the earlier one is kept, so that the same array always gives the same bytes.
        order.select_nth_unstable_by(kept, |&a, &b| {
            let magnitude = |i: u32| values[i as usize].abs();
            magnitude(b).total_cmp(&magnitude(a)).then(a.cmp(&b))
        });
        order.truncate(kept);
    }
    order.sort_unstable();
    let mut body = Vec::with_capacity(kept * 6);
    let mut next = 0;
    for index in order {
        let mut gap = index - next;
        while gap >= 0x80 {
            body.push(gap as u8 | 0x80);
            gap >>= 7;
        }
        body.push(gap as u8);
        body.extend_from_slice(&values[index as usize].to_le_bytes());
        next = index + 1;
    }
    Ok(body)
}

fn scattered(count: usize, body: &[u8], share: u16) -> Result<Vec<f32>, EncodeError> {
    if !(1..=1000).contains(&share) {
        return Err(EncodeError::Share(share));
    }
    let end = EncodeError::Malformed("it ends within a number");
    let mut values = vec![0.0; count];
    let mut rest = body;
    let mut next = 0u64;
    for _ in 0..kept(count, share) {
        let mut gap = 0u64;
        for place in 0..MOST_GAP_BYTES {
            let (byte, after) = rest.split_first().ok_or_else(|| end.clone())?;
            rest = after;
            gap |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                break;
            }
            if place + 1 == MOST_GAP_BYTES {
                return Err(EncodeError::Malformed("a gap has more than 32 bits"));
            }
        }
        let (value, after) = rest.split_first_chunk::<4>().ok_or_else(|| end.clone())?;
        rest = after;
        let place = values.get_mut((next + gap) as usize);
        *place.ok_or(EncodeError::Malformed("a position lies outside the array"))? =
            f32::from_le_bytes(*value);
        next += gap + 1;
    }
    match rest.is_empty() {
        true => Ok(values),
        false => Err(EncodeError::Malformed("bytes follow its last number")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_nearest_whole_numbers() {
        for step in -127 * 64..=127 * 64 {
            let scaled = step as f32 / 64.0;
            assert_eq!(level(scaled) as i8, scaled.round_ties_even() as i8, "{scaled}");
        }
        // A quotient of the largest magnitude and a scale made from it may be a little larger.
        assert_eq!(level(127.000_01) as i8, 127);
        assert_eq!(level(-127.000_01) as i8, -127);
    }
}
