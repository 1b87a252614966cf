//! Numbers without their zeros, of which activations have many: a bit for each number, then those that are not zero, bit for bit.

use super::EncodeError;

/// So many numbers share a word of bits, the first of them in its lowest one.
const WORD: usize = u64::BITS as usize;
/// Bytes of a number.
const NUMBER: usize = size_of::<f32>();

/// Bytes of the bits for so many numbers: whole words, little-endian.
pub(super) const fn bit_bytes(count: usize) -> usize {
    count.div_ceil(WORD) * size_of::<u64>()
}

pub(super) fn write(values: &[f32]) -> Vec<u8> {
    let bits = bit_bytes(values.len());
    let mut body = Vec::with_capacity(bits + NUMBER * values.len());
    body.resize(bits, 0);
    for (index, values) in values.chunks(WORD).enumerate() {
        // All are written, each over the last one if that is zero: a processor guesses no branch wrong.
        let (mut kept, mut count, mut word) = ([0u32; WORD], 0, 0u64);
        for (at, value) in values.iter().enumerate() {
            let number = value.to_bits().to_le();
            kept[count % WORD] = number;
            let is_kept = number != 0;
            count += usize::from(is_kept);
            word |= u64::from(is_kept) << at;
        }
        body[index * size_of::<u64>()..][..size_of::<u64>()].copy_from_slice(&word.to_le_bytes());
        body.extend_from_slice(bytemuck::cast_slice(&kept[..count]));
    }
    body
}

/// Reads what [`write()`] has written. The bytes may come from anyone.
pub(super) fn read(count: usize, body: &[u8]) -> Result<Vec<f32>, EncodeError> {
    let short = EncodeError::Malformed("it ends within its numbers");
    let (bits, numbers) = split(count, body).ok_or_else(|| short.clone())?;
    let mut values = vec![0.0; count];
    let (words, mut rest) = (bits.as_chunks().0, numbers);
    for (values, word) in values.chunks_mut(WORD).zip(words) {
        let mut word = u64::from_le_bytes(*word);
        let kept = word.count_ones() as usize;
        let (numbers, after) = rest
            .split_at_checked(kept * NUMBER)
            .ok_or_else(|| short.clone())?;
        rest = after;
        let numbers = numbers
            .as_chunks()
            .0
            .iter()
            .map(|number| f32::from_le_bytes(*number));
        if kept == values.len() && word.trailing_ones() as usize == kept {
            values
                .iter_mut()
                .zip(numbers)
                .for_each(|(value, number)| *value = number);
            continue;
        }
        for number in numbers {
            let value = values.get_mut(word.trailing_zeros() as usize);
            *value.ok_or(EncodeError::Malformed("a bit is set behind its last number"))? = number;
            word &= word - 1;
        }
    }
    match rest.is_empty() {
        true => Ok(values),
        false => Err(EncodeError::Malformed("bytes follow its last number")),
    }
}

/// The same bytes, those of the numbers by their places: all lowest ones first. There is more to pack in them, for signs, exponents and digits
/// are alike among each other only. Nothing where this is no such body.
pub(super) fn by_places(count: usize, body: &[u8]) -> Option<Vec<u8>> {
    let (bits, numbers) = split(count, body)?;
    let numbers: &[[u8; NUMBER]] = numbers.as_chunks().0;
    let mut sorted = Vec::with_capacity(body.len());
    sorted.extend_from_slice(bits);
    for place in 0..NUMBER {
        sorted.extend(numbers.iter().map(|number| number[place]));
    }
    Some(sorted)
}

/// What [`by_places`] was given.
pub(super) fn in_order(count: usize, sorted: &[u8]) -> Option<Vec<u8>> {
    let (bits, places) = split(count, sorted)?;
    let each = places.len() / NUMBER;
    let place = |place: usize| places[place * each..][..each].iter();
    let numbers = place(0).zip(place(1)).zip(place(2).zip(place(3)));
    let mut body = sorted.to_vec();
    let in_order = body[bits.len()..].as_chunks_mut().0;
    for (number, ((a, b), (c, d))) in in_order.iter_mut().zip(numbers) {
        *number = [*a, *b, *c, *d];
    }
    Some(body)
}

/// The bits, and the bytes of the numbers that follow them.
fn split(count: usize, body: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bits, numbers) = body.split_at_checked(bit_bytes(count))?;
    numbers.len().is_multiple_of(NUMBER).then_some((bits, numbers))
}
