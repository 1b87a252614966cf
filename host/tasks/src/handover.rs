use crate::{Handover, Kept, Saved, SubmitError, TaskRecord};
use karman_types::NodeId;

impl Handover {
    /// A kept task as the keepers know it, where the node that hands it over is its owner. Of what that node says only the input counts,
    /// which the machine holds against the fingerprint, and the time left. Otherwise any member that knows the id of a task could have
    /// a keeper run something else in its place.
    ///
    /// # Errors
    /// [`SubmitError::NoHandover`] when the keepers know of no such task that goes on; [`SubmitError::Owned`] when it has another owner.
    pub fn of_owner(self, from: NodeId, kept: Option<Kept>) -> Result<Self, SubmitError> {
        let Self { record: said, within } = self;
        let goes_on =
            |kept: &Kept| matches!(kept.record.state, Saved::Open(_)) && kept.record.name == said.name;
        let Kept { owner, record, .. } = kept.filter(goes_on).ok_or(SubmitError::NoHandover)?;
        if owner != from || said.epoch != record.epoch.next() {
            return Err(SubmitError::Owned);
        }
        let record = TaskRecord {
            epoch: said.epoch,
            state: said.state,
            ..record
        };
        Ok(Self { record, within })
    }
}
