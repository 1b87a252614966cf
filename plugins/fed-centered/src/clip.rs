//! The rule, and what it keeps from round to round.

const BYTES: usize = 4;

/// By how much the model moves: the mean of the updates, of which those that are further from the centre than the middle one are drawn
/// to its distance.
pub(crate) fn moved(centre: &[f32], updates: &[Vec<f32>]) -> Vec<f32> {
    let distances: Vec<f64> = updates.iter().map(|update| distance(centre, update)).collect();
    let radius = middle(&distances);
    let mut sums = vec![0.0; centre.len()];
    for (update, distance) in updates.iter().zip(&distances) {
        let kept = match *distance > radius {
            true => radius / distance,
            false => 1.0,
        };
        for ((sum, number), from) in sums.iter_mut().zip(update).zip(centre) {
            *sum += kept * (f64::from(*number) - f64::from(*from));
        }
    }
    let count = updates.len().max(1) as f64;
    let each = centre.iter().zip(sums);
    each.map(|(from, sum)| (f64::from(*from) + sum / count) as f32).collect()
}

fn distance(one: &[f32], other: &[f32]) -> f64 {
    let square = |(one, other): (&f32, &f32)| (f64::from(*one) - f64::from(*other)).powi(2);
    one.iter().zip(other).map(square).sum::<f64>().sqrt()
}

/// Of an even number the lesser of the two in the middle: half of the updates may lie.
fn middle(distances: &[f64]) -> f64 {
    let mut sorted = distances.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

pub(crate) fn write(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

pub(crate) fn read(state: &[u8], length: usize) -> Result<Vec<f32>, String> {
    let (numbers, rest) = state.as_chunks::<BYTES>();
    match rest.is_empty() && numbers.len() == length {
        true => Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()),
        false => Err(format!("a state of {} bytes is of another model", state.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_agree_move_the_model_as_they_say() {
        let moved = moved(&[0.0, 0.0], &[vec![3.0, 4.0], vec![3.0, 4.0], vec![3.0, 4.0]]);
        assert_eq!(moved, [3.0, 4.0]);
    }

    #[test]
    fn who_is_far_away_pulls_no_further_than_the_middle_one() {
        let updates = [0.9, 1.0, 1.1, 1000.0, 1000.0].map(|number| vec![number]);
        let moved = moved(&[0.0], &updates);
        // The two count as 1.1.
        assert!((moved[0] - 1.04).abs() < 1e-6, "{moved:?}");
    }

    #[test]
    fn what_was_known_leads_back_to_the_honest() {
        let updates = [0.9, 1.0, 1.1, -1000.0, -1000.0].map(|number| vec![number]);
        let mut centre = vec![0.0];
        for _ in 0..60 {
            centre = moved(&centre, &updates);
        }
        assert!((0.75..1.25).contains(&centre[0]), "{centre:?}");
    }

    #[test]
    fn what_it_writes_it_reads_and_nothing_else() {
        let numbers = [1.5, -0.25];
        assert_eq!(read(&write(&numbers), 2).unwrap(), numbers);
        assert!(read(&write(&numbers), 3).is_err());
        assert!(read(&[1, 2, 3], 0).is_err());
    }
}
