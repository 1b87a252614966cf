use super::chunk::Chunk;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::ByteBuf;

/// Some of a round's chunks: one bit each, on its way too.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Inventory {
    words: Vec<u64>,
    count: u32,
}

/// The words that are read of one, which may come from anyone: those of four million chunks. The digests of half as many fill a letter.
const MOST_WORDS: usize = Inventory::MOST_BYTES / 8;

impl Serialize for Inventory {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        serializer.serialize_bytes(&bytes)
    }
}

impl<'de> Deserialize<'de> for Inventory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // As long in memory as on its way: an empty number would take one byte there, and eight here.
        let bytes = ByteBuf::deserialize(deserializer)?;
        let (words, rest) = bytes.as_chunks::<8>();
        if !rest.is_empty() || words.len() > MOST_WORDS {
            let have = bytes.len();
            return Err(D::Error::custom(format_args!(
                "a set of chunks has at most {MOST_WORDS} words of 8 bytes, and this has {have} bytes"
            )));
        }
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        Ok(Self::from(words))
    }
}

impl Inventory {
    /// The longest that is read, in bytes.
    pub const MOST_BYTES: usize = 1 << 19;

    /// Nothing, of so many chunks.
    pub fn none(of: u32) -> Self {
        Self {
            words: vec![0; of.div_ceil(64) as usize],
            count: 0,
        }
    }

    /// Puts a chunk in; whether it was not there before.
    pub fn insert(&mut self, chunk: Chunk) -> bool {
        let Some(word) = self.words.get_mut(chunk as usize / 64) else {
            return false;
        };
        let bit = 1 << (chunk % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.count += u32::from(new);
        new
    }

    /// Takes a chunk out; whether it was there.
    pub fn remove(&mut self, chunk: Chunk) -> bool {
        let there = self.contains(chunk);
        if there {
            self.words[chunk as usize / 64] &= !(1 << (chunk % 64));
            self.count -= 1;
        }
        there
    }

    /// Whether a chunk is there.
    pub fn contains(&self, chunk: Chunk) -> bool {
        self.words
            .get(chunk as usize / 64)
            .is_some_and(|word| word & (1 << (chunk % 64)) != 0)
    }

    /// How many there are.
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The chunks, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Chunk> + '_ {
        self.words
            .iter()
            .enumerate()
            .flat_map(|(place, word)| bits(*word).map(move |bit| place as u32 * 64 + bit))
    }

    /// Whether all chunks from one up to another are there.
    pub fn has_all(&self, mut chunks: std::ops::Range<Chunk>) -> bool {
        chunks.all(|chunk| self.contains(chunk))
    }

    /// The chunks that are here and not in `there`.
    pub fn missing_in<'a>(&'a self, there: &'a Self) -> impl Iterator<Item = Chunk> + 'a {
        let words = self.words.iter().zip(&there.words).enumerate();
        words.flat_map(|(place, (here, there))| bits(here & !there).map(move |bit| place as u32 * 64 + bit))
    }

    /// How many chunks are here and not in `there`.
    pub(crate) fn count_missing_in(&self, there: &Self) -> u32 {
        let words = self.words.iter().zip(&there.words);
        words.map(|(here, there)| (here & !there).count_ones()).sum()
    }

    /// One of the chunks that are here and not in `there`, the one with the least `count` of a few that are drawn: going through all
    /// of them for the very least would cost more than a slot has time for.
    pub(crate) fn draw_missing_in(
        &self,
        there: &Self,
        random: &mut fastrand::Rng,
        count: impl Fn(Chunk) -> u32,
    ) -> Option<Chunk> {
        const FEW: usize = 4;
        let start = random.usize(..self.words.len().max(1));
        let turn = random.u32(..64);
        let drawn = self
            .words_from(there, start)
            .take(FEW)
            .map(|(place, word)| place * 64 + (word.rotate_right(turn).trailing_zeros() + turn) % 64);
        drawn.min_by_key(|chunk| count(*chunk))
    }

    /// Whether it speaks of so many chunks and of none beyond.
    pub(crate) fn fits(&self, of: u32) -> bool {
        self.words.len() == of.div_ceil(64) as usize && self.iter().all(|chunk| chunk < of)
    }

    /// The words with chunks that are missing there, all around from a start.
    fn words_from<'a>(&'a self, there: &'a Self, start: usize) -> impl Iterator<Item = (u32, u64)> + 'a {
        let all = (start..self.words.len()).chain(0..start.min(self.words.len()));
        all.map(|place| (place as u32, self.words[place] & !there.words[place]))
            .filter(|(_, word)| *word != 0)
    }
}

impl From<Vec<u64>> for Inventory {
    fn from(words: Vec<u64>) -> Self {
        let count = words.iter().map(|word| word.count_ones()).sum();
        Self { words, count }
    }
}

fn bits(mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn an_inventory_is_a_set(
            here in prop::collection::btree_set(0_u32..300, 0..80),
            there in prop::collection::btree_set(0_u32..300, 0..80),
            seed in any::<u64>(),
        ) {
            let set = |chunks: &BTreeSet<u32>| {
                let mut set = Inventory::none(300);
                for chunk in chunks {
                    assert!(set.insert(*chunk) && !set.insert(*chunk));
                }
                set
            };
            let (mut a, b) = (set(&here), set(&there));
            prop_assert_eq!(a.iter().collect::<BTreeSet<_>>(), here.clone());
            prop_assert_eq!(a.len() as usize, here.len());
            let missing: BTreeSet<_> = here.difference(&there).copied().collect();
            prop_assert_eq!(a.missing_in(&b).collect::<BTreeSet<_>>(), missing.clone());
            prop_assert_eq!(a.count_missing_in(&b) as usize, missing.len());
            match a.draw_missing_in(&b, &mut fastrand::Rng::with_seed(seed), |chunk| chunk) {
                Some(drawn) => prop_assert!(missing.contains(&drawn)),
                None => prop_assert!(missing.is_empty()),
            }
            for chunk in &here {
                prop_assert!(a.remove(*chunk) && !a.remove(*chunk));
            }
            prop_assert!(a.is_empty());
        }
    }

    #[test]
    fn an_inventory_of_more_than_a_letter_names_is_not_read() {
        let read = |bytes: usize| {
            let written = cbor4ii::serde::to_vec(Vec::new(), &ByteBuf::from(vec![1u8; bytes])).unwrap();
            cbor4ii::serde::from_slice::<Inventory>(&written).map_err(|error| error.to_string())
        };
        let most = read(8 * MOST_WORDS).unwrap();
        assert_eq!(most.len() as usize, 8 * MOST_WORDS);
        let written = cbor4ii::serde::to_vec(Vec::new(), &most).unwrap();
        assert_eq!(cbor4ii::serde::from_slice::<Inventory>(&written).unwrap(), most);
        for wrong in [8 * MOST_WORDS + 8, 8 * MOST_WORDS - 1, 1] {
            assert!(read(wrong).unwrap_err().contains("at most 65536"), "{wrong}");
        }
    }

    #[test]
    fn an_inventory_takes_in_memory_what_it_took_on_its_way() {
        let nothing = Inventory::none(64 * 1000);
        let written = cbor4ii::serde::to_vec(Vec::new(), &nothing).unwrap();
        assert!((8000..8010).contains(&written.len()), "{}", written.len());
    }

    #[test]
    fn a_chunk_beyond_the_end_is_nowhere() {
        let mut some = Inventory::none(10);
        assert!(!some.insert(64) && !some.contains(64) && !some.remove(64));
        (2..5).for_each(|chunk| assert!(some.insert(chunk)));
        assert!(some.has_all(2..5) && !some.has_all(2..6));
    }
}
