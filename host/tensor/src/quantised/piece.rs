//! A piece of an activation out of a whole one, and back. Both lie row by row, column by column, channel by channel.

use super::{Extent, Part};

impl Part {
    /// Its values, of a whole activation of this extent.
    pub fn cut(&self, extent: Extent, values: &[i8]) -> Vec<i8> {
        let mut piece = Vec::with_capacity(self.cells() * extent.width);
        for cell in self.places(extent) {
            piece.extend_from_slice(&values[cell..cell + self.channels.len()]);
        }
        piece
    }

    /// Puts its values where they belong in a whole activation. There are as many as the part has.
    pub fn put(&self, extent: Extent, values: &mut [i8], piece: &[i8]) {
        let given = piece.chunks_exact(self.channels.len().max(1));
        for (cell, given) in self.places(extent).zip(given) {
            values[cell..cell + self.channels.len()].copy_from_slice(given);
        }
    }

    /// Where its channels begin, for each of its rows and columns.
    fn places(&self, extent: Extent) -> impl Iterator<Item = usize> {
        let first = self.channels.start;
        let rows = self.rows.clone();
        rows.flat_map(move |row| (0..extent.width).map(move |column| (row, column)))
            .map(move |(row, column)| (row * extent.width + column) * extent.channels + first)
    }
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
            let piece = part.cut(extent, &values);
            assert_eq!(piece.len(), part.cells() * extent.width);
            part.put(extent, &mut back, &piece);
        }
        assert_eq!(back, values);
        // The last two channels of the middle column of the second row.
        assert_eq!(Part::new(1..2, 3..5).cut(extent, &values)[2..4], [23, 24]);
    }
}
