//! A round that has opened, and in which nothing has been sent yet.

use super::Playing;
use crate::drive::swarm::company::Members;
use crate::drive::swarm::shelf::Shelf;
use crate::drive::swarm::talk::{ENVELOPE, LONGEST_LIST, invalid, longest_led};
use karman_fed::swarm::{Answer, Beginning, Descriptor, Link, Opening, Peer, Shown, SwarmSettings};
use karman_mesh::Mailbox;
use karman_types::{Digest, TaskError};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

/// A round that has opened.
pub(in crate::drive::swarm) struct Open {
    pub(in crate::drive::swarm) round: Digest,
    opening: Opening,
    chunks: Vec<Vec<u8>>,
    descriptor: Descriptor,
    mailbox: Arc<Mailbox>,
    shown: Shown,
}

impl Open {
    /// It agrees to take part, if it is as protected as it wants to be at `least`. The others see that it is one of the `members`, and whose
    /// its mailbox is.
    pub(in crate::drive::swarm) fn new(
        round: Digest,
        opening: Opening,
        update: &[f32],
        weight: u32,
        least: f64,
        members: &dyn Members,
    ) -> Result<Self, TaskError> {
        if update.len() != opening.numbers as usize {
            let (have, need) = (update.len(), opening.numbers);
            return Err(invalid(&format!(
                "the update here has {have} numbers instead of {need}"
            )));
        }
        let settings = &opening.settings;
        let terms = settings.check_terms();
        terms.map_err(|error| invalid(&error).with_field("settings"))?;
        if settings.protection() < least {
            let says = format!(
                "chunks of this node would leave with {:.3} of an update's to hide them; it takes part from {least} on",
                settings.protection()
            );
            return Err(TaskError::denied(says).with_field("settings.gate"));
        }
        let layout = settings.layout;
        // Padding costs memory and the disk of everybody.
        let most = (2 * size_of_val(update)).max(layout.chunk as usize);
        if layout.room() > most {
            let says = format!(
                "{} bytes for an update here; at most {most} are filled up",
                layout.room()
            );
            return Err(TaskError::limit(says).with_field("settings.layout"));
        }
        let bytes: Vec<u8> = update.iter().flat_map(|number| number.to_le_bytes()).collect();
        let chunks = layout.cut(&bytes).map_err(|error| invalid(&error))?;
        let mut pseudonym = [0; 32];
        getrandom::fill(&mut pseudonym).map_err(|error| TaskError::internal(error.to_string()))?;
        let descriptor = Descriptor::of(Digest::from_bytes(pseudonym), weight, &chunks);
        descriptor
            .check(&layout, opening.settings.most_weight)
            .map_err(|error| invalid(&error))?;
        let mailbox = Mailbox::fresh();
        Ok(Self {
            shown: members.shows(round, &mailbox)?,
            round,
            opening,
            chunks,
            descriptor,
            mailbox: Arc::new(mailbox),
        })
    }

    pub(in crate::drive::swarm) fn answer(&self, link: Link) -> Answer {
        Answer::Here {
            descriptor: self.descriptor.clone(),
            mailbox: (*self.mailbox.address()).into(),
            link,
            shown: self.shown.clone(),
        }
    }

    /// The longest letter that the leader has to say before the round begins: who takes part, of whose updates there is room for on the disk.
    pub(in crate::drive::swarm) fn longest_led(&self, disk: u64, link: Link) -> usize {
        let layout = &self.opening.settings.layout;
        let clients = disk / (layout.room() as u64).max(1);
        let clients = clients.min(SwarmSettings::MOST_CLIENTS as u64) as usize;
        longest_led(clients, layout, link).max(LONGEST_LIST + ENVELOPE)
    }

    /// The others are known: its own chunks go on the shelf, which has room for so many bytes.
    pub(in crate::drive::swarm) fn begin(
        &self,
        beginning: Beginning,
        folder: &Path,
        disk: u64,
    ) -> Result<Playing, TaskError> {
        let settings = &self.opening.settings;
        let need = beginning.descriptors.len() as u64 * settings.layout.room() as u64;
        if need > disk {
            let says = format!("the updates of all take {need} bytes on the disk; at most {disk} are given");
            tracing::warn!("{says}: this node takes no part in the round");
            return Err(TaskError::limit(says).with_field("disk"));
        }
        let pseudonyms = beginning.descriptors.iter().map(|one| one.pseudonym).collect();
        let own = self.descriptor.digest();
        let peer = Peer::new(settings, beginning.me, &own, beginning.descriptors)
            .map_err(|error| invalid(&error))?;
        let shelf = Shelf::new(folder, settings.layout.chunk)?;
        for (chunk, bytes) in peer.held().iter().zip(&self.chunks) {
            shelf.put(chunk, bytes)?;
        }
        Ok(Playing {
            round: self.round,
            numbers: self.opening.numbers as usize,
            layout: settings.layout,
            me: beginning.me,
            clients: beginning.clients,
            pseudonyms,
            peer,
            mailbox: self.mailbox.clone(),
            shelf: Arc::new(shelf),
            fresh: Vec::new(),
            neighbours: Vec::new(),
            words: BTreeMap::new(),
            slot: 0,
            missed: BTreeMap::new(),
            gone: BTreeSet::new(),
            covered: false,
        })
    }
}
