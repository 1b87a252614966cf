use super::event::{Part, Summed};
use super::{AssignmentId, Coordinator, RoundFailure, screen};
use crate::strategy::Facts;
use karman_tensor::arithmetic::FixedSum;

impl Coordinator {
    /// Takes in the sum of a round's updates. Nothing can be taken out of it again, so that what speaks against one of its parts speaks
    /// against all of it: the round fails, and whoever is to blame is named where that can be told.
    pub(super) fn summed(&mut self, sum: Summed) {
        self.core.tally.bytes_up += sum.bytes;
        let awaited = |part: &Part| {
            let known = self.core.assignments.get(&part.assignment);
            known.is_some_and(|known| known.client == part.client)
        };
        if self.run.secure_sum.is_none() || !sum.parts.iter().all(awaited) {
            // It is of a round that is over.
            return;
        }
        if let Err(why) = self.take_sum(sum) {
            self.fail_round(RoundFailure::NoSum(why));
        }
    }

    fn take_sum(&mut self, sum: Summed) -> Result<(), String> {
        let Summed {
            parts,
            elements,
            weight,
            ..
        } = sum;
        let mut impossible = 0;
        for part in &parts {
            if let Err(refusal) = screen::declared(part.samples, part.steps, part.loss, &self.run.limits) {
                self.refuse(part.client, refusal);
                impossible += 1;
            }
        }
        if impossible > 0 {
            return Err(format!("{impossible} of those in it declare what cannot be"));
        }
        let length = self.layout.length();
        if elements.len() != length {
            return Err(format!("it has {} numbers instead of {length}", elements.len()));
        }
        let facts: Vec<Facts> = parts.iter().map(|part| self.facts(part)).collect();
        let declared: u64 = facts.iter().map(|facts| facts.weight).sum();
        if declared != weight {
            return Err(format!(
                "the weights in it come to {weight}, those that clients declare to {declared}"
            ));
        }
        let sum = FixedSum::of_parts(self.grid, parts.len() as u32, elements);
        let sum = sum.map_err(|error| error.to_string())?;
        for part in &parts {
            self.answered(part.client, part.assignment, part.steps, part.loss);
        }
        let added = self.gathering.add_sum(facts, sum, &*self.arithmetic);
        added.map_err(|error| error.to_string())
    }

    fn facts(&self, part: &Part) -> Facts {
        Facts {
            client: part.client,
            assignment: part.assignment,
            samples: part.samples,
            weight: self.run.weights.weight(part.samples),
            steps: part.steps,
            loss: part.loss,
            staleness: 0,
        }
    }

    /// A round whose sum will not come fails.
    pub(super) fn unsummed(&mut self, assignments: &[AssignmentId], reason: String) {
        let awaited = |id: &AssignmentId| self.core.assignments.contains_key(id);
        if assignments.iter().any(awaited) {
            self.fail_round(RoundFailure::NoSum(reason));
        }
    }
}
