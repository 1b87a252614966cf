//! The account against that of PyPI's `dp-accounting`: `accountant/reference.py` wrote the figures.

use karman_fed::privacy::{Accountant, Adjacency, Participants, Rate};
use karman_types::NodeId;

#[test]
fn the_account_is_that_of_dp_accounting_within_half_a_percent() {
    let node = [NodeId::of_key(b"a client")];
    let mut compared = 0;
    for line in include_str!("accountant/reference.csv").lines().skip(1) {
        let fields: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
        let [noise_multiplier, rate, rounds, delta, epsilon] = fields[..] else {
            panic!("{line}")
        };
        let participants = Participants::poisson(&node, Rate::new(rate).unwrap(), &[1; 32], 1);
        let mut accountant = Accountant::new(Adjacency::AddOrRemoveClient);
        for _ in 0..rounds as u64 {
            accountant.add(noise_multiplier, &participants).unwrap();
        }
        let ours = accountant.spent(delta).unwrap().epsilon;
        assert!((ours - epsilon).abs() <= 5e-3 * epsilon, "{line}: ours is {ours}");
        compared += 1;
    }
    assert_eq!(compared, 227);
}
