use super::Board;
use std::ops::Range;

/// The most that portions sum to, unless there are more boards: finer ones would be lost where a layer has few rows.
const MOST: u32 = 16;

/// How much each board takes, in whole numbers: by its share of the free memory or of the speed, whichever is less.
///
/// It is a first guess; the chooser moves portions from boards whose memory is too small to those with room.
pub fn portions(boards: &[Board]) -> Vec<u32> {
    let memory: f64 = boards.iter().map(|board| board.free_memory as f64).sum();
    let speed: f64 = boards.iter().map(|board| board.operations_per_second).sum();
    let share = |board: &Board| (board.free_memory as f64 / memory).min(board.operations_per_second / speed);
    let shares: Vec<f64> = boards.iter().map(share).collect();
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let total: f64 = shares.iter().sum();
    // Equal boards take one each; others as fine a division as the bound allows.
    let scale = match shares.iter().all(|share| share / least < 1.05) {
        true => 1.0 / least,
        false => f64::from(MOST) / total,
    };
    shares
        .iter()
        .map(|share| (share * scale + 1e-9).floor().max(1.0) as u32)
        .collect()
}

/// Moves one portion between two boards, where the first has one to give: not its last.
pub(super) fn move_one(portions: &mut [u32], from: usize, to: usize) -> bool {
    let can = from != to && portions[from] > 1;
    if can {
        portions[from] -= 1;
        portions[to] += 1;
    }
    can
}

/// Consecutive ranges that cover `0..total`, as long as the portions say, to the nearest whole number.
pub fn divide(total: usize, portions: &[u32]) -> Vec<Range<usize>> {
    let sum: u64 = portions
        .iter()
        .map(|portion| u64::from(*portion))
        .sum::<u64>()
        .max(1);
    let mut before = 0u64;
    let mut bound = |portion: u32| {
        before += u64::from(portion);
        ((total as u64 * before * 2 + sum) / (2 * sum)) as usize
    };
    let mut start = 0;
    let mut range = |portion: &u32| {
        let end = bound(*portion);
        std::mem::replace(&mut start, end)..end
    };
    portions.iter().map(&mut range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn board(memory: u64, speed: f64) -> Board {
        Board {
            free_memory: memory,
            free_flash: 1,
            operations_per_second: speed,
        }
    }

    proptest! {
        #[test]
        fn ranges_follow_on_each_other_and_cover_all(total in 0usize..2000, portions in prop::collection::vec(1u32..9, 1..12)) {
            let ranges = divide(total, &portions);
            let mut at = 0;
            for (range, portion) in ranges.iter().zip(&portions) {
                prop_assert_eq!(range.start, at);
                at = range.end;
                let exact = total as f64 * f64::from(*portion) / f64::from(portions.iter().sum::<u32>());
                prop_assert!((range.len() as f64 - exact).abs() <= 1.0);
            }
            prop_assert_eq!(at, total);
        }
    }

    #[test]
    fn the_scarcer_of_memory_and_speed_counts() {
        assert_eq!(portions(&[board(512, 1e6); 8]), [1; 8]);
        // Twice the memory and twice the speed: twice the work.
        assert_eq!(
            portions(&[board(400, 2e6), board(200, 1e6), board(200, 1e6)]),
            [8, 4, 4]
        );
        // A fast board without memory takes what its memory allows.
        let uneven = portions(&[board(100, 1e6), board(400, 1e6), board(400, 1e6)]);
        assert!(
            uneven[0] * 2 < uneven[1] && uneven.iter().sum::<u32>() <= MOST,
            "{uneven:?}"
        );
    }
}
