//! For how long each activation of a network is needed, and what lives at once.

use super::{Network, Operator};

impl Network {
    /// Whether each layer takes what the one before it gives, and no other.
    pub fn is_chain(&self) -> bool {
        self.takes()
            .iter()
            .enumerate()
            .all(|(layer, taken)| layer == *taken)
    }

    /// Whether an activation is taken by a layer after this one.
    pub fn is_used_after(&self, activation: usize, layer: usize) -> bool {
        (layer + 1..self.layers().len()).any(|later| self.uses(later, activation))
    }

    /// The most bytes of activations that live at once where one layer is computed after the other, each dropped after its last use but
    /// those that are kept to the end.
    pub fn most_held(&self, kept: &[usize]) -> u64 {
        let bytes = |activation: usize| self.activation(activation).elements() as u64;
        let during = |layer: usize| -> u64 {
            let lives = |activation: &usize| {
                self.uses(layer, *activation)
                    || self.is_used_after(*activation, layer)
                    || kept.contains(activation)
            };
            (0..=layer).filter(lives).chain([layer + 1]).map(bytes).sum()
        };
        (0..self.layers().len()).map(during).max().unwrap_or_default()
    }

    fn uses(&self, layer: usize, activation: usize) -> bool {
        let adds = match *self.layers()[layer].operator() {
            Operator::Add { other } => other == activation,
            _ => false,
        };
        adds || self.takes()[layer] == activation
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Add, Extent, Layer, MaxPool, Parameters, Range8};
    use super::*;

    /// Two maxima of the input, side by side, and their sum.
    fn branching(takes: [usize; 3]) -> Network {
        let input = Extent::new(1, 3, 3).unwrap();
        let most = |window| Layer::max_pool(input, [window; 2], 1, window / 2).unwrap();
        let full = Range8::full(0);
        let pool = || Parameters::MaxPool(MaxPool::new(1.0, 0, full).unwrap());
        let layers = vec![most(1), most(3), Layer::add(input, 1)];
        let add = Parameters::Add(Add::new([1.0, 1.0], [0, 0], full).unwrap());
        Network::branching(layers, takes.to_vec(), vec![pool(), pool(), add]).unwrap()
    }

    #[test]
    fn layers_side_by_side_take_the_same() {
        let network = branching([0, 0, 2]);
        assert!(!network.is_chain());
        let sums = network.run(&[1, 2, 3, 4, 5, 6, 7, 8, 9]).unwrap();
        assert_eq!(sums, [6, 8, 9, 12, 14, 15, 15, 17, 18]);
        assert!(network.is_used_after(0, 0) && !network.is_used_after(0, 1));
        assert!(network.is_used_after(1, 1) && !network.is_used_after(1, 2));
        // Both maxima and their sum, or the input and both.
        assert_eq!(network.most_held(&[]), 27);
        assert_eq!(network.most_held(&[0]), 36);
        assert_eq!(branching([0, 1, 2]).most_held(&[]), 27);
    }

    #[test]
    fn what_is_not_there_yet_cannot_be_taken() {
        let network = branching([0, 0, 2]);
        let with = |takes: Vec<usize>| {
            let (layers, parameters) = (network.layers().to_vec(), network.parameters().to_vec());
            Network::branching(layers, takes, parameters).map_err(|error| error.to_string())
        };
        assert_eq!(
            with(vec![0, 2, 2]).unwrap_err(),
            "layer 1 takes activation 2: it must be one of those before it"
        );
        assert!(with(vec![0, 0]).is_err());
    }
}
