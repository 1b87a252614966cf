//! A piece of an activation out of a whole one, and back. Both lie row by row, column by column, channel by channel.

use karman_tensor::quantised::{Extent, Part};

/// The values of a part.
pub(super) fn cut(extent: Extent, values: &[i8], part: &Part) -> Vec<i8> {
    let mut piece = Vec::with_capacity(part.cells() * extent.width);
    for cell in cells(extent, part) {
        piece.extend_from_slice(&values[cell..cell + part.channels.len()]);
    }
    piece
}

/// Puts the values of a part where they belong. There are as many as the part has.
pub(super) fn put(extent: Extent, values: &mut [i8], part: &Part, piece: &[u8]) {
    let given = piece.chunks_exact(part.channels.len().max(1));
    for (cell, given) in cells(extent, part).zip(given) {
        let place = &mut values[cell..cell + part.channels.len()];
        for (place, given) in place.iter_mut().zip(given) {
            *place = *given as i8;
        }
    }
}

/// Where the channels of a part begin, for each of its rows and columns.
fn cells(extent: Extent, part: &Part) -> impl Iterator<Item = usize> {
    let first = part.channels.start;
    let rows = part.rows.clone();
    rows.flat_map(move |row| (0..extent.width).map(move |column| (row, column)))
        .map(move |(row, column)| (row * extent.width + column) * extent.channels + first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_where_they_were() {
        let extent = Extent::new(5, 4, 3).unwrap();
        let values: Vec<i8> = (0..extent.elements()).map(|at| at as i8).collect();
        let mut back = vec![-1; values.len()];
        for (rows, channels) in [(0..4, 0..2), (0..1, 2..5), (1..4, 2..5)] {
            let part = Part::new(rows, channels);
            let piece: Vec<u8> = cut(extent, &values, &part)
                .into_iter()
                .map(|value| value as u8)
                .collect();
            assert_eq!(piece.len(), part.cells() * extent.width);
            put(extent, &mut back, &part, &piece);
        }
        assert_eq!(back, values);
        // The last two channels of the middle column of the second row.
        assert_eq!(cut(extent, &values, &Part::new(1..2, 3..5))[2..4], [23, 24]);
    }
}
