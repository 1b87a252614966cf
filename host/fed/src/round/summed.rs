use super::event::{Part, Summed};
use super::{Action, AssignmentId, Coordinator, Loss, Refusal, RoundFailure};
use crate::ClientId;
use crate::strategy::Facts;
use karman_tensor::arithmetic::FixedSum;

impl Coordinator {
    /// Takes in the sum of a round's updates. Nothing can be taken out of it again, so that what speaks against one of its parts speaks
    /// against all of it: the round fails, and whoever is to blame is named where that can be told.
    pub(super) fn summed(&mut self, sum: Summed) {
        self.core.tally.bytes_up += sum.bytes;
        let lost: Vec<ClientId> = sum
            .parts
            .iter()
            .filter(|part| !self.is_awaited(part))
            .map(|part| part.client)
            .collect();
        if self.run.secure_sum.is_none() || lost.len() == sum.parts.len() {
            // It is of a round that is over.
            return;
        }
        let taken = match lost.first() {
            Some(client) => Err(format!("{client} is in it, and was given up meanwhile")),
            None => self.take_sum(sum),
        };
        if let Err(why) = taken {
            self.fail_round(RoundFailure::NoSum(why));
        }
    }

    fn is_awaited(&self, part: &Part) -> bool {
        let known = self.core.assignments.get(&part.assignment);
        known.is_some_and(|known| known.client == part.client)
    }

    /// Does without a client whose part cannot be, before its update is in a sum.
    pub(super) fn misdeclared(&mut self, part: &Part) {
        if !self.is_awaited(part) {
            return;
        }
        if let Err(refusal) = part.check(&self.run.limits) {
            self.refuse(part.client, refusal);
        }
        self.lose(part.assignment, Loss::Refused);
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
            if let Err(refusal) = part.check(&self.run.limits) {
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
            let took = Some(part.took);
            self.answered(part.client, part.assignment, part.steps, part.loss, took);
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

    /// A round whose sum, or mean, will not come fails. Where that is somebody's lie, the next one is without that client, and comes to a
    /// sum if enough are left.
    pub(super) fn unsummed(&mut self, assignments: &[AssignmentId], liar: Option<ClientId>, reason: String) {
        let awaited = |id: &AssignmentId| self.core.assignments.contains_key(id);
        if !assignments.iter().any(awaited) {
            return;
        }
        let failure = match self.run.swarm {
            Some(_) => RoundFailure::NoMean(reason),
            None => RoundFailure::NoSum(reason),
        };
        let lie = match self.run.swarm {
            Some(_) => Refusal::FalsePieces,
            None => Refusal::FalseSecret,
        };
        match liar.is_some_and(|liar| self.shut_out(liar, lie)) {
            // Clients are finite, so this ends without being counted.
            true => self.drop_round(failure),
            false => self.fail_round(failure),
        }
    }

    /// Asks a client of the run nothing more, for one lie is enough; whether it is one.
    pub(super) fn shut_out(&mut self, client: ClientId, lie: Refusal) -> bool {
        self.refuse(client, lie);
        let Some(member) = self.core.roster.get_mut(&client) else {
            return false;
        };
        if !member.excluded {
            member.excluded = true;
            self.out.push(Action::Excluded { client });
        }
        true
    }
}
