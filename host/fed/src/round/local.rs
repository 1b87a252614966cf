//! What a run with `[local-privacy]` knows of what its clients have given away: no more than their answers come to, those that were
//! refused or say that there is none among them. Each client keeps its own account, and may have sent what never arrived.

use super::roster::{Member, Roster};
use super::{AssignmentId, Coordinator, Failure};
use crate::privacy::Spent;
use crate::select::NotEligible;
use crate::{ClientId, LocalPrivacy, Run};

/// What the client has given away that has answered most orders; nothing where clients add no noise.
pub(super) fn spent(run: &Run, roster: &Roster) -> Option<Spent> {
    let most = roster.values().map(|member| member.answers).max();
    let local = run.local_privacy?.mechanism().ok()?;
    match most.unwrap_or(0) {
        0 => local.spent().ok(),
        updates => local.spent_after(updates, run.local_privacy?.delta).ok(),
    }
}

impl Coordinator {
    /// Counts what a client answers to an order, whatever becomes of it: an update has left it. Whoever gives up may have nothing left to give,
    /// and is not asked for ever.
    pub(super) fn count_answer(&mut self, client: ClientId, id: AssignmentId) {
        let asked = self.core.assignments.get(&id);
        let answers = asked.is_some_and(|known| known.client == client);
        if let Some(member) = self.core.roster.get_mut(&client).filter(|_| answers) {
            member.answers += 1;
        }
    }

    /// Whether a client may give away one more update, by the bounds of the run and of its operator.
    ///
    /// # Errors
    /// The bound that it would exceed.
    pub(super) fn check_account(&self, member: &Member) -> Result<(), NotEligible> {
        let Some(local) = &self.run.local_privacy else {
            return Ok(());
        };
        if let Some(most) = local.most_epsilon {
            let epsilon = after(local, member, local.delta);
            if epsilon > most {
                return Err(NotEligible::Epsilon { epsilon, most });
            }
        }
        if let Some(most) = member.profile.most_epsilon {
            let epsilon = after(local, member, LocalPrivacy::USUAL_DELTA);
            if epsilon > most {
                return Err(NotEligible::EpsilonOfNode { epsilon, most });
            }
        }
        Ok(())
    }

    /// Ends a run in which fewer clients than this may give away more, because the others have given away what they may; once its last
    /// version is judged, which no account counts.
    pub(super) fn end_if_given_away(&mut self, least: usize) {
        if self.run.local_privacy.is_none() || self.core.evaluating.is_some() {
            return;
        }
        let counted = self.core.roster.values().filter(|member| !member.excluded);
        let (left, out): (Vec<&Member>, Vec<&Member>) =
            counted.partition(|member| self.check_account(member).is_ok());
        let left = left.len();
        if left < least && out.iter().any(|member| member.answers > 0) {
            self.end(Some(Failure::GivenAway { left, least }));
        }
    }
}

/// ε after one more update of a client. What cannot be accounted for is not given away.
fn after(local: &LocalPrivacy, member: &Member, delta: f64) -> f64 {
    let spent = local
        .mechanism()
        .ok()
        .and_then(|it| it.spent_after(member.answers + 1, delta).ok());
    spent.map_or(f64::INFINITY, |spent| spent.epsilon)
}
