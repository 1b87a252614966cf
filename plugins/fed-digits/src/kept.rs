//! What a client has kept for it between two trainings.

use crate::train;

/// A client's memory of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Kept {
    /// Which of the carried records are its own.
    pub(crate) places: Vec<u32>,
    /// SCAFFOLD's own control variate; nothing without it.
    pub(crate) control: Vec<f32>,
}

impl Kept {
    /// Nothing where the bytes are not of a model of this length.
    pub(crate) fn read(bytes: &[u8], length: usize) -> Option<Self> {
        if bytes.is_empty() {
            return Some(Self::default());
        }
        let (count, rest) = bytes.split_first_chunk()?;
        let count = u32::from_le_bytes(*count) as usize;
        let (places, control) = rest.split_at_checked(count.checked_mul(4)?)?;
        let places = places.as_chunks().0.iter();
        Some(Self {
            places: places.map(|word| u32::from_le_bytes(*word)).collect(),
            control: match control.is_empty() {
                true => Vec::new(),
                false => train::read(control, length)?,
            },
        })
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(4 * (1 + self.places.len() + self.control.len()));
        bytes.extend((self.places.len() as u32).to_le_bytes());
        bytes.extend(self.places.iter().flat_map(|place| place.to_le_bytes()));
        bytes.extend(train::write(&self.control));
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for control in [Vec::new(), vec![0.5, -2.0]] {
            let kept = Kept {
                places: vec![7, 1796],
                control,
            };
            assert_eq!(Kept::read(&kept.write(), 2), Some(kept));
        }
        assert_eq!(Kept::read(&[], 2), Some(Kept::default()));
        let of_another = Kept {
            places: vec![7],
            control: vec![0.5; 3],
        };
        assert_eq!(Kept::read(&of_another.write(), 2), None);
        assert_eq!(Kept::read(&[255; 4], 2), None);
        assert_eq!(Kept::read(&[1, 0], 2), None);
    }
}
