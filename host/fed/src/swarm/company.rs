//! Who may be in a round together: a client looks at that before a chunk leaves it, for whoever leads may lie.

use super::message::Beginning;
use super::overlay::Client;
use karman_types::NodeId;
use std::collections::BTreeSet;

/// Clients that cannot be those of a round.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompanyError {
    /// Nobody hides alone.
    #[error("a round of {clients} clients; there are {fewest} at least", fewest = Beginning::FEWEST)]
    TooFew {
        /// How many there are.
        clients: usize,
    },
    /// One node in place of several.
    #[error("node {} is in the round twice", .0.short())]
    Twice(NodeId),
    /// Somebody else has the number that the client is told.
    #[error("client {me} of the round is not this node")]
    NotMe {
        /// The number.
        me: Client,
    },
    /// Whoever leads knows whose update is whose: no piece of one goes there.
    #[error("node {}, which leads the round, is among its clients", .0.short())]
    Leads(NodeId),
}

impl Beginning {
    /// The fewest clients of a round.
    pub const FEWEST: usize = 2;

    /// That these can be the clients of a round in which the node `own` takes part and that `lead` leads. Whether they are members of
    /// the mesh, [`super::Shown`] tells those who know its key.
    ///
    /// # Errors
    ///
    /// There are too few, one is there twice, `own` is not the one that it is told to be, or `lead` is among them.
    pub fn check_company(&self, own: NodeId, lead: NodeId) -> Result<(), CompanyError> {
        let clients = self.clients.len();
        if clients < Self::FEWEST {
            return Err(CompanyError::TooFew { clients });
        }
        let mut seen = BTreeSet::new();
        for place in &self.clients {
            if place.node == lead {
                return Err(CompanyError::Leads(lead));
            }
            if !seen.insert(place.node) {
                return Err(CompanyError::Twice(place.node));
            }
        }
        let me = self.clients.get(usize::from(self.me));
        match me.is_some_and(|place| place.node == own) {
            true => Ok(()),
            false => Err(CompanyError::NotMe { me: self.me }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::swarm::Place;

    fn node(client: u8) -> NodeId {
        NodeId::of_key(&[client])
    }

    /// What a client says on node 0 that is told to be number `me` of these, led by node 9.
    fn told(me: Client, clients: &[u8]) -> Result<(), CompanyError> {
        let place = |client: &u8| Place {
            node: node(*client),
            mailbox: [0; 32].into(),
        };
        let beginning = Beginning {
            me,
            clients: clients.iter().map(place).collect(),
            descriptors: Vec::new(),
            shown: Vec::new(),
        };
        beginning.check_company(node(0), node(9))
    }

    #[test]
    fn a_client_is_in_no_round_with_the_wrong_company() {
        assert_eq!(told(0, &[0, 1]), Ok(()));
        assert_eq!(told(2, &[1, 2, 0]), Ok(()));
        assert_eq!(told(0, &[0]), Err(CompanyError::TooFew { clients: 1 }));
        assert_eq!(told(0, &[]), Err(CompanyError::TooFew { clients: 0 }));
        assert_eq!(told(0, &[0, 1, 1]), Err(CompanyError::Twice(node(1))));
        assert_eq!(told(0, &[0, 0]), Err(CompanyError::Twice(node(0))));
        assert_eq!(told(1, &[0, 1]), Err(CompanyError::NotMe { me: 1 }));
        assert_eq!(told(0, &[1, 2]), Err(CompanyError::NotMe { me: 0 }));
        assert_eq!(told(3, &[0, 1]), Err(CompanyError::NotMe { me: 3 }));
        assert_eq!(told(0, &[0, 9]), Err(CompanyError::Leads(node(9))));
    }
}
