//! Numbers of which there are few, as those of a picture: a byte for each that says which, and tables of what they are.

use super::EncodeError;
use rustc_hash::FxHashMap;

/// The most numbers of a table: those that a byte tells apart.
const MOST: usize = 1 << u8::BITS;
/// Bytes of a number.
const NUMBER: usize = size_of::<f32>();

/// The bytes of so many numbers in rows of so many, at most.
pub(super) fn most_bytes(count: usize, row: usize) -> usize {
    let tables = |rows: usize, row: usize| rows * (1 + NUMBER * row.min(MOST));
    count + tables(1, count).max(tables(count.div_ceil(row), row))
}

/// The places of all numbers in their tables, then the tables, each behind how many numbers it has less one: one for all numbers or, where
/// these are too many, one for each row of so many.
pub(super) fn write(values: &[f32], row: usize) -> Result<Vec<u8>, EncodeError> {
    let of_rows = |row: usize| {
        let (mut body, mut tables) = (Vec::with_capacity(values.len()), Vec::new());
        for values in values.chunks(row) {
            tabulate(values, &mut body, &mut tables)?;
        }
        body.extend_from_slice(&tables);
        Some(body)
    };
    of_rows(values.len().max(1))
        .or_else(|| of_rows(row))
        .ok_or(EncodeError::TooManyDifferent)
}

/// Appends the places of these numbers, and their table. Nothing where they are too many.
fn tabulate(values: &[f32], places: &mut Vec<u8>, tables: &mut Vec<u8>) -> Option<()> {
    // Bit for bit, so that a negative zero is one.
    let mut seen: FxHashMap<u32, u8> = FxHashMap::default();
    let mut found: Vec<(f32, u8)> = Vec::new();
    let begin = places.len();
    for value in values {
        let next = seen.len();
        if next == MOST && !seen.contains_key(&value.to_bits()) {
            return None;
        }
        let place = *seen.entry(value.to_bits()).or_insert(next as u8);
        if usize::from(place) == next {
            found.push((*value, place));
        }
        places.push(place);
    }
    // Numbers that are close to each other get places that are.
    found.sort_unstable_by(|(a, _), (b, _)| a.total_cmp(b));
    let mut sorted = [0u8; MOST];
    tables.extend(found.len().checked_sub(1).map(|last| last as u8));
    for (at, (value, place)) in found.iter().enumerate() {
        sorted[usize::from(*place)] = at as u8;
        tables.extend_from_slice(&value.to_le_bytes());
    }
    let places = &mut places[begin..];
    places
        .iter_mut()
        .for_each(|place| *place = sorted[usize::from(*place)]);
    Some(())
}

/// Reads what [`write()`] has written for this many rows. The bytes may come from anyone.
pub(super) fn read(count: usize, rows: usize, body: &[u8]) -> Result<Vec<f32>, EncodeError> {
    let short = EncodeError::Malformed("it ends within its numbers or tables");
    let (places, mut rest) = body.split_at_checked(count).ok_or_else(|| short.clone())?;
    let mut tables: Vec<&[[u8; NUMBER]]> = Vec::new();
    while let Some((last, after)) = rest.split_first() {
        let bytes = (usize::from(*last) + 1) * NUMBER;
        let (table, after) = after.split_at_checked(bytes).ok_or_else(|| short.clone())?;
        tables.push(table.as_chunks().0);
        rest = after;
    }
    if tables.len() != 1 && tables.len() != rows && count > 0 {
        return Err(EncodeError::Malformed(
            "it has another number of tables than of channels",
        ));
    }
    let mut values = Vec::with_capacity(count);
    for (places, table) in places.chunks((count / tables.len().max(1)).max(1)).zip(tables) {
        // A place behind the end of its table is none of a number.
        let mut numbers = [f32::NAN; MOST];
        for (number, bytes) in numbers.iter_mut().zip(table) {
            *number = f32::from_le_bytes(*bytes);
        }
        values.extend(places.iter().map(|place| numbers[usize::from(*place)]));
    }
    Ok(values)
}

/// The same bytes, each place as what it is beyond the one before: neighbours in a picture are alike, so that there is more to pack.
pub(super) fn as_steps(count: usize, body: &[u8]) -> Option<Vec<u8>> {
    let mut steps = body.to_vec();
    let mut before = 0;
    for place in steps.get_mut(..count)? {
        (*place, before) = (place.wrapping_sub(before), *place);
    }
    Some(steps)
}

/// What [`as_steps`] was given.
pub(super) fn as_places(count: usize, mut steps: Vec<u8>) -> Option<Vec<u8>> {
    let mut before = 0u8;
    for place in steps.get_mut(..count)? {
        before = before.wrapping_add(*place);
        *place = before;
    }
    Some(steps)
}
