//! Conditions that are stated by who knows them: an operator who cuts a link, or an oracle that others are compared with.

use super::Replanner;
use super::link::LinkNews;
use crate::partition::{Action, Cause, Event, Link, Partitioner, ProblemError, Tier};

impl<P: Partitioner> Replanner<P> {
    /// Tiers and links are like this at the moment. What is measured from now on corrects it.
    ///
    /// # Errors
    ///
    /// They make no sense.
    pub fn state(&mut self, tiers: Vec<Tier>, links: Vec<Link>) -> Result<Vec<Action>, ProblemError> {
        self.now_are(tiers.clone(), links)?;
        self.conditions.set_tiers(tiers);
        Ok(self.by_what_is_stated())
    }

    /// The links are like this until others are stated: what is measured of them counts for nothing from now on. What is measured of tiers
    /// counts as before.
    ///
    /// # Errors
    ///
    /// They make no sense.
    pub fn state_links(&mut self, links: Vec<Link>) -> Result<Vec<Action>, ProblemError> {
        self.now_are(self.nominal.tiers().to_vec(), links)?;
        self.links_are_stated = true;
        Ok(self.by_what_is_stated())
    }

    fn now_are(&mut self, tiers: Vec<Tier>, links: Vec<Link>) -> Result<(), ProblemError> {
        let weights = self.nominal.weights().clone();
        self.nominal = self.nominal.under(tiers, links.clone(), weights)?;
        self.news = vec![LinkNews::new(self.due); links.len()];
        self.conditions.set_links(links);
        Ok(())
    }

    fn by_what_is_stated(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.decide(Cause::Stated, &mut actions);
        actions
    }

    /// Whether an event tells nothing but of a link that is stated.
    pub(super) const fn is_known(&self, event: &Event) -> bool {
        self.links_are_stated
            && matches!(
                event,
                Event::Sent { .. }
                    | Event::Answered { .. }
                    | Event::Overdue { .. }
                    | Event::Back { .. }
                    | Event::Link { .. }
            )
    }
}
