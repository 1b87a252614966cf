use karman_space::{Contact, Rate, Time};
use karman_types::NodeId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A contact of the plan, as a node tells it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct PlannedContact {
    /// The node that sends.
    pub from: NodeId,
    /// The node that receives.
    pub to: NodeId,
    /// The first instant at which a bit can leave.
    pub start: Time,
    /// The last bit has left by then.
    pub end: Time,
    /// How fast it sends.
    pub rate: Rate,
    /// Microseconds that a bit is on its way.
    pub delay_us: u64,
}

impl From<Contact> for PlannedContact {
    fn from(contact: Contact) -> Self {
        let Contact {
            from,
            to,
            start,
            end,
            rate,
            delay,
        } = contact;
        Self {
            from,
            to,
            start,
            end,
            rate,
            delay_us: delay.as_micros() as u64,
        }
    }
}

impl From<PlannedContact> for Contact {
    fn from(planned: PlannedContact) -> Self {
        let PlannedContact {
            from,
            to,
            start,
            end,
            rate,
            delay_us,
        } = planned;
        Self {
            from,
            to,
            start,
            end,
            rate,
            delay: Duration::from_micros(delay_us),
        }
    }
}
