use std::ops::Range;

/// Groups that are asked for at once: 256 KiB, what is lost at most when a link breaks.
pub const PIECE: u64 = 16;
/// The most groups that are answered at once.
pub const MOST_GROUPS: u64 = 4 * PIECE;
/// From how many nodes a piece is asked for at once, when no other is left: a node that has become slow holds up nobody.
const AT_ONCE: usize = 2;

/// What of a blob is still to be fetched, and who was asked for it.
#[derive(Debug)]
pub(super) struct Plan {
    pieces: Vec<Piece>,
    /// All before this one are here.
    first: usize,
}

#[derive(Debug)]
struct Piece {
    groups: Range<u64>,
    here: bool,
    /// The sources that were asked for it and have not answered.
    asked: Vec<usize>,
}

impl Plan {
    /// For these runs of groups.
    pub(super) fn of(missing: &[Range<u64>]) -> Self {
        let mut pieces = Vec::new();
        for run in missing {
            let mut start = run.start;
            while start < run.end {
                let end = (start / PIECE + 1).saturating_mul(PIECE).min(run.end);
                pieces.push(Piece {
                    groups: start..end,
                    here: false,
                    asked: Vec::new(),
                });
                start = end;
            }
        }
        Self { pieces, first: 0 }
    }

    /// What to ask this source for, by number; nothing while the others do what is left.
    pub(super) fn next(&mut self, source: usize) -> Option<(usize, Range<u64>)> {
        while self.pieces.get(self.first).is_some_and(|piece| piece.here) {
            self.first += 1;
        }
        let open = (self.first..).zip(&self.pieces[self.first..]);
        let mut open = open.filter(|(_, piece)| !piece.here && !piece.asked.contains(&source));
        let untouched = open.clone().find(|(_, piece)| piece.asked.is_empty());
        let (number, _) = untouched.or_else(|| open.find(|(_, piece)| piece.asked.len() < AT_ONCE))?;
        let piece = &mut self.pieces[number];
        piece.asked.push(source);
        Some((number, piece.groups.clone()))
    }

    /// A source has answered: the piece is here now, or it is not.
    pub(super) fn answered(&mut self, number: usize, source: usize, here: bool) {
        let piece = &mut self.pieces[number];
        piece.here |= here;
        piece.asked.retain(|asked| *asked != source);
    }

    /// Whether all is here.
    pub(super) fn is_done(&self) -> bool {
        self.pieces[self.first..].iter().all(|piece| piece.here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_aligned_and_cover_what_is_missing() {
        let mut plan = Plan::of(&[3..40, 50..51]);
        let pieces: Vec<_> = std::iter::from_fn(|| plan.next(0))
            .map(|(_, groups)| groups)
            .collect();
        assert_eq!(pieces, [3..16, 16..32, 32..40, 50..51]);
    }

    #[test]
    fn the_last_pieces_are_asked_for_twice() {
        let mut plan = Plan::of(std::slice::from_ref(&(0..32)));
        let (slow, _) = plan.next(0).unwrap();
        let (quick, _) = plan.next(1).unwrap();
        plan.answered(quick, 1, true);
        assert_eq!(plan.next(1), Some((slow, 0..16)));
        assert_eq!(plan.next(2), None);
        plan.answered(slow, 1, true);
        assert!(plan.is_done());
    }

    proptest! {
        /// However sources fail, as long as one goes on all of it comes, and nobody is asked twice at once for the same.
        #[test]
        fn all_of_it_comes(
            groups in 1u64..2_000,
            sources in 1usize..5,
            luck in proptest::collection::vec((0usize..5, any::<bool>()), 0..400),
        ) {
            let mut plan = Plan::of(std::slice::from_ref(&(0..groups)));
            let mut under_way: Vec<(usize, usize)> = Vec::new();
            for (source, works) in luck {
                let source = source % sources;
                if let Some((number, _)) = plan.next(source) {
                    prop_assert!(!under_way.contains(&(number, source)));
                    under_way.push((number, source));
                }
                if let Some((number, source)) = under_way.pop() {
                    plan.answered(number, source, works);
                }
            }
            for (number, source) in under_way.drain(..) {
                plan.answered(number, source, false);
            }
            let mut left = groups.div_ceil(PIECE);
            while let Some((number, _)) = plan.next(0) {
                plan.answered(number, 0, true);
                prop_assert!(left > 0);
                left -= 1;
            }
            prop_assert!(plan.is_done());
        }
    }
}
