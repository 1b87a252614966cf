//! A sum that a client has joined. All of it happens where it may take its time, and to its end: a link that is cut in the middle
//! leaves nothing half done.

use super::message::{Answered, Common, Lesson};
use crate::drive::cbor;
use karman_fed::secure::{Client, Refusal, Settings, Step, ToClient, ToServer};
use karman_types::{Digest, TaskError};
use serde::Serialize;

pub(super) struct Joined {
    /// Nothing once it has revealed what it reveals: its secrets are of no more use.
    client: Option<Client>,
    settings: Settings,
    /// What was asked last, and answered: asked again, because the answer was lost on its way, it is answered again. Nothing where the
    /// answer is not kept any more.
    last: (Digest, Option<Answered>),
}

/// What an order to train leads to.
pub(super) enum Begun {
    /// It was carried out before, with this answer.
    Answered(Answered),
    /// The training, and what its answer is known by.
    Trains(Digest, Box<Lesson>),
}

/// What a client says of its training in the open: samples, steps, loss.
pub(super) type Declared = (u64, u32, f32);

impl Joined {
    /// It has joined, being `asked` so, and says this.
    pub(super) fn new(client: Client, settings: Settings, asked: Digest, says: ToServer) -> Self {
        Self {
            client: Some(client),
            settings,
            last: (asked, Some(Answered::Says(says))),
        }
    }

    /// The answer to what was asked last; nothing where this is something else.
    ///
    /// # Errors
    /// The answer is not kept any more, and is given once.
    pub(super) fn answered(&self, asked: Digest) -> Result<Option<Answered>, TaskError> {
        match &self.last {
            (of, _) if *of != asked => Ok(None),
            (_, Some(answered)) => Ok(Some(answered.clone())),
            (_, None) => Err(TaskError::failed(
                "the masked update of this order was sent, and kept for as long as an answer may be lost on its way: it is not here any more",
            )
            .with_field("step")),
        }
    }

    /// Bytes of the masked vector that is kept in case it was lost on its way.
    pub(super) fn kept(&self) -> usize {
        match &self.last.1 {
            Some(Answered::Trained {
                says: ToServer::Masked(bytes),
                ..
            }) => bytes.len(),
            _ => 0,
        }
    }

    /// Keeps it no longer, if that is still the answer to this.
    pub(super) fn forget(&mut self, asked: Digest) {
        if self.last.0 == asked {
            self.forget_vector();
        }
    }

    /// Keeps no masked vector any longer.
    pub(super) fn forget_vector(&mut self) {
        if self.kept() > 0 {
            self.last.1 = None;
        }
    }

    /// Answers, or answers again.
    pub(super) fn answer(&mut self, said: ToClient) -> Result<Answered, TaskError> {
        let asked = mark(&said)?;
        if let Some(answered) = self.answered(asked)? {
            return Ok(answered);
        }
        let none = || TaskError::invalid("the neighbours' shares come with the training").with_field("step");
        let client = self.client()?;
        let says = client.handle(said).map_err(refused)?.ok_or_else(none)?;
        if client.step() == Step::Done {
            self.client = None;
        }
        Ok(self.says(asked, Answered::Says(says)))
    }

    /// Takes the neighbours' shares, if the lesson that comes with them is the one that all have agreed on.
    pub(super) fn begin(
        &mut self,
        said: ToClient,
        lesson: Box<Lesson>,
        common: &Common,
    ) -> Result<Begun, TaskError> {
        let asked = mark(&said)?;
        if let Some(answered) = self.answered(asked)? {
            return Ok(Begun::Answered(answered));
        }
        lesson.check()?;
        if lesson.digest(common)? != self.settings.round {
            let says = "this is not the training that the clients of this sum have agreed on";
            return Err(TaskError::denied(says).with_field("lesson"));
        }
        let client = self.client()?;
        // A training that was cut off by a lost link goes on; the shares are here already.
        if client.step() != Step::Mask && client.handle(said).map_err(refused)?.is_some() {
            return Err(TaskError::invalid("a training comes with the neighbours' shares").with_field("step"));
        }
        Ok(Begun::Trains(asked, lesson))
    }

    /// Masks an update. `counts` puts down that it is given away, before it is.
    pub(super) fn give(
        &mut self,
        asked: Digest,
        vector: &[u64],
        (samples, steps, loss): Declared,
        counts: impl FnOnce() -> Result<(), TaskError>,
    ) -> Result<Answered, TaskError> {
        if let Some(answered) = self.answered(asked)? {
            return Ok(answered);
        }
        let (have, need) = (vector.len(), self.settings.length);
        if have != need {
            let says = format!("the sum is of {need} numbers, the update and its weight are {have}");
            return Err(TaskError::invalid(says).with_field("settings.length"));
        }
        let client = self.client()?;
        counts()?;
        let says = client.mask(vector).map_err(refused)?;
        let answered = Answered::Trained {
            says,
            samples,
            steps,
            loss,
        };
        Ok(self.says(asked, answered))
    }

    fn client(&mut self) -> Result<&mut Client, TaskError> {
        self.client.as_mut().ok_or_else(|| refused(Refusal::Revealed))
    }

    fn says(&mut self, asked: Digest, answered: Answered) -> Answered {
        self.last = (asked, Some(answered.clone()));
        answered
    }
}

/// What a question is known by when it comes again.
pub(super) fn mark(asked: &impl Serialize) -> Result<Digest, TaskError> {
    Ok(Digest::of(&cbor::write(asked)?))
}

pub(super) fn refused(refusal: Refusal) -> TaskError {
    TaskError::denied(refusal.to_string())
}
