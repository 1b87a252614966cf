use super::{Account, Counted, SplitError};

/// The most bytes of a packet, its head included: what the boards of the literature send at once.
pub const MOST_BYTES: usize = 1400;
/// Bytes of a head: kind, input, stage, row, offset.
pub const HEAD_BYTES: usize = 10;

/// What a packet carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// Nothing: rows before `row` may be sent.
    Grant,
    /// Values of a row.
    Rows,
    /// Sums of a row, each of 4 bytes.
    Sums,
}

/// The first bytes of a packet, little-endian.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    pub(super) what: What,
    /// Which input of the stage.
    pub(super) input: usize,
    pub(super) stage: usize,
    pub(super) row: usize,
    /// Counted in elements: column by column, the sender's channels side by side.
    pub(super) offset: usize,
}

impl Head {
    /// A packet with this head and nothing behind it.
    pub(super) fn write(self, account: &Account) -> Counted<u8> {
        let mut bytes = [0; HEAD_BYTES];
        bytes[0] = self.what as u8;
        bytes[1] = self.input as u8;
        bytes[2..4].copy_from_slice(&(self.stage as u16).to_le_bytes());
        bytes[4..6].copy_from_slice(&(self.row as u16).to_le_bytes());
        bytes[6..].copy_from_slice(&(self.offset as u32).to_le_bytes());
        let mut packet = account.empty();
        packet.grow(&bytes);
        packet
    }

    /// The head of a packet, and what is behind it.
    pub(super) fn read(peer: usize, packet: &[u8]) -> Result<(Self, &[u8]), SplitError> {
        let malformed = SplitError::Malformed {
            peer,
            bytes: packet.len(),
        };
        let Some((&[what, input, s0, s1, r0, r1, o0, o1, o2, o3], payload)) = packet.split_first_chunk()
        else {
            return Err(malformed);
        };
        let what = match what {
            0 => What::Grant,
            1 => What::Rows,
            2 => What::Sums,
            _ => return Err(malformed),
        };
        let fits = match what {
            What::Grant => payload.is_empty(),
            What::Rows => !payload.is_empty(),
            What::Sums => !payload.is_empty() && payload.len().is_multiple_of(4),
        };
        if !fits || packet.len() > MOST_BYTES {
            return Err(malformed);
        }
        let head = Self {
            what,
            input: input.into(),
            stage: u16::from_le_bytes([s0, s1]).into(),
            row: u16::from_le_bytes([r0, r1]).into(),
            offset: u32::from_le_bytes([o0, o1, o2, o3]) as usize,
        };
        Ok((head, payload))
    }

    /// The error of a packet that has no business here.
    pub(super) const fn unasked(self, peer: usize) -> SplitError {
        SplitError::Unasked {
            peer,
            what: match self.what {
                What::Grant => "a grant",
                What::Rows => "values",
                What::Sums => "sums",
            },
            stage: self.stage,
            row: self.row,
            offset: self.offset,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_head_is_read_as_it_was_written(stage in 0usize..9999, row in 0usize..65_535, offset in 0usize..1 << 30) {
            for what in [What::Rows, What::Sums] {
                let head = Head { what, input: 3, stage, row, offset };
                let mut packet = head.write(&Account::default());
                packet.grow(&[1, 2, 3, 4]);
                prop_assert_eq!(Head::read(0, &packet), Ok((head, &[1u8, 2, 3, 4][..])));
            }
        }

        #[test]
        fn whatever_arrives_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((head, payload)) = Head::read(0, &bytes) {
                prop_assert_eq!(payload.len() + HEAD_BYTES, bytes.len());
                prop_assert!(head.what != What::Grant || payload.is_empty());
            }
        }
    }
}
