//! The orders of a run that are under way: what becomes of each is an event of the run.

use super::clock::Clock;
use super::joint::Joint;
use super::memory::Memory;
use super::spread;
use super::sum::{self, Credential};
use super::wire::{self, Answer, Course, Frames, NOT_ASKED, Order, RunId, Work};
use crate::drive::swarm::{SwarmLed, SwarmPlan};
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_fed::{AssignmentId, ClientId, Event, Layout, Profile, Run, Windows};
use karman_tensor::encode::Link;
use karman_types::{ErrorKind, NodeId, TaskError};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::AbortHandle;

/// How long a client is tried that cannot be reached, before it counts as gone: it may be starting again.
const LOST_AFTER: Duration = Duration::from_secs(30);
/// How long between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// The clients of a run, wherever they are.
pub(super) trait Clients: Send + Sync {
    /// Has a client carry an order out. Dropping the future withdraws it.
    fn ask(&self, order: Order, time: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>>;

    /// Told that a client does not answer any more: [`Event::Here`] follows when it does again.
    fn lost(&self, _client: ClientId) {}

    /// When clients are in view, as far as that is planned, in the time of the run.
    fn windows(&self, _clock: Clock) -> Windows {
        Windows::new()
    }

    /// The nodes of clients, client 0 first.
    fn members(&self) -> Vec<NodeId> {
        Vec::new()
    }

    /// Whose credential this is, if it is that of a member.
    fn identify(&self, _credential: &Credential) -> Result<NodeId, TaskError> {
        Err(TaskError::denied("these clients are no members of a mesh").with_field("invited"))
    }

    /// Leads a round in which these nodes wait to spread their updates.
    fn lead(&self, _plan: SwarmPlan, _nodes: Vec<NodeId>) -> BoxFuture<'static, Result<SwarmLed, TaskError>> {
        let says = "these clients are on no nodes of a mesh";
        async move { Err::<SwarmLed, _>(TaskError::unavailable(says)) }.boxed()
    }

    /// What clients keep that this process plays.
    fn memory(&self) -> Option<&Memory> {
        None
    }
}

/// What a client said of itself.
pub(super) fn here(client: ClientId, answer: &Answer) -> Option<Event> {
    match answer {
        Answer::Described {
            samples,
            label_entropy,
            charge,
            link,
            adapter_rank,
            most_epsilon,
            ..
        } => Some(Event::Here {
            client,
            profile: Profile {
                samples: *samples,
                label_entropy: *label_entropy,
                charge: *charge,
                link: link.map(|bytes_per_second| Link { bytes_per_second }),
                adapter_rank: *adapter_rank,
                most_epsilon: *most_epsilon,
            },
        }),
        _ => None,
    }
}

/// Orders that wait for their answers.
pub(super) struct Orders {
    clients: Arc<dyn Clients>,
    outbox: UnboundedSender<Event>,
    under_way: HashMap<AssignmentId, AbortHandle>,
    /// The last model that was sent, and the same as it travels.
    frames: Option<(Arc<[f32]>, Arc<Frames>)>,
}

impl Orders {
    /// None yet; what becomes of them goes to `outbox`.
    pub(super) fn new(clients: Arc<dyn Clients>, outbox: UnboundedSender<Event>) -> Self {
        Self {
            clients,
            outbox,
            under_way: HashMap::new(),
            frames: None,
        }
    }

    /// Sends an order of a run, and sees to it that what comes of it is an event.
    ///
    /// # Errors
    /// Arrays that cannot be written for the way.
    pub(super) fn send(
        &mut self,
        (id, run): (&RunId, &Run),
        layout: &Layout,
        client: ClientId,
        sent: karman_fed::Order,
    ) -> Result<(), TaskError> {
        let (assignment, time) = (sent.assignment, sent.time);
        let order = Order::new(id, run, client, self.work(run, layout, sent)?);
        let (clients, outbox) = (self.clients.clone(), self.outbox.clone());
        let task = tokio::spawn(async move {
            let answer = ask_patiently(&*clients, order, time, LOST_AFTER).await;
            let is_lost = matches!(&answer, Err(error) if error.kind == ErrorKind::Unavailable);
            // The run may be over.
            let _ = outbox.send(outcome(client, assignment, answer));
            // Not before the run knows that it is gone: it is to hear that it is back after that.
            if is_lost {
                clients.lost(client);
            }
        });
        self.under_way.insert(assignment, task.abort_handle());
        Ok(())
    }

    /// Has the clients of all orders of a round come to one thing together, by which one task sees to all of them.
    ///
    /// # Errors
    /// A model that cannot be written for the way.
    pub(super) fn together(
        &mut self,
        (id, run): (&RunId, &Run),
        layout: &Layout,
        sent: Vec<(ClientId, karman_fed::Order)>,
    ) -> Result<(), TaskError> {
        let Some((_, first)) = sent.first() else {
            return Ok(());
        };
        let assignments: Vec<AssignmentId> = sent.iter().map(|(_, order)| order.assignment).collect();
        let joint = Joint {
            clients: self.clients.clone(),
            outbox: self.outbox.clone(),
            id: id.clone(),
            run: run.clone(),
            length: layout.length(),
            model: self.model(layout, first)?,
            orders: sent,
        };
        let task = match run.swarm {
            Some(_) => tokio::spawn(spread::make(joint)),
            None => tokio::spawn(sum::make(joint)),
        };
        for order in assignments {
            self.under_way.insert(order, task.abort_handle());
        }
        Ok(())
    }

    /// The model of an order as it travels.
    fn model(&mut self, layout: &Layout, sent: &karman_fed::Order) -> Result<Arc<Frames>, TaskError> {
        let model = match &self.frames {
            Some((model, frames)) if Arc::ptr_eq(model, &sent.model) => frames.clone(),
            _ => Arc::new(wire::frames(layout, &sent.model)?),
        };
        self.frames = Some((sent.model.clone(), model.clone()));
        Ok(model)
    }

    fn work(&mut self, run: &Run, layout: &Layout, sent: karman_fed::Order) -> Result<Work, TaskError> {
        let model = self.model(layout, &sent)?;
        let (assignment, version) = (sent.assignment, sent.version);
        Ok(match (sent.work, run.local_privacy) {
            (karman_fed::Work::Evaluate, _) => Work::Evaluate { model },
            (karman_fed::Work::Train(train), Some(noise)) => Work::TrainPrivately {
                assignment,
                version,
                course: Course::from(&train),
                noise,
                model,
            },
            (karman_fed::Work::Train(train), None) => Work::Train {
                assignment,
                version,
                course: Course::from(&train),
                model,
                control: train
                    .control
                    .map_or(Ok(Vec::new()), |control| wire::frames(layout, &control))?,
                adapters: train
                    .adapters
                    .map_or(Ok(Vec::new()), |it| wire::frames(&it.layout, &it.numbers))?,
            },
        })
    }

    /// Whether this event is of an order that was not withdrawn meanwhile; of one that ends, an order is under way no more.
    pub(super) fn is_awaited(&mut self, event: &Event) -> bool {
        match event {
            Event::Updated { assignment, .. }
            | Event::Judged { assignment, .. }
            | Event::GaveUp { assignment, .. } => self.under_way.remove(assignment).is_some(),
            Event::Misdeclared { part } => self.under_way.remove(&part.assignment).is_some(),
            // Whether all of them still count is for the run to say: a sum cannot be taken in parts.
            Event::Summed { sum } => self.ended(sum.parts.iter().map(|part| part.assignment)) > 0,
            Event::Swarmed { swarmed } => {
                let parts = swarmed.parts.iter().map(|(part, _)| part.assignment);
                self.ended(parts.chain(swarmed.absent.iter().map(|one| one.assignment))) > 0
            }
            Event::Unsummed { assignments, .. } => self.ended(assignments.iter().copied()) > 0,
            _ => true,
        }
    }

    /// These are under way no more; how many of them were.
    fn ended(&mut self, assignments: impl Iterator<Item = AssignmentId>) -> usize {
        assignments
            .filter(|assignment| self.under_way.remove(assignment).is_some())
            .count()
    }

    /// Whether an order's answer has yet to be taken in.
    pub(super) fn awaits(&self, assignment: AssignmentId) -> bool {
        self.under_way.contains_key(&assignment)
    }

    /// Nobody waits for an order's answer any more. Others of the same round may: it is not ended.
    pub(super) fn forget(&mut self, assignment: AssignmentId) {
        self.under_way.remove(&assignment);
    }

    pub(super) fn withdraw(&mut self, assignment: AssignmentId) {
        if let Some(order) = self.under_way.remove(&assignment) {
            order.abort();
        }
    }
}

impl Drop for Orders {
    fn drop(&mut self) {
        self.under_way.values().for_each(AbortHandle::abort);
    }
}

fn outcome(client: ClientId, assignment: AssignmentId, answer: Result<Answer, TaskError>) -> Event {
    let gave_up = |reason: String| Event::GaveUp {
        client,
        assignment,
        reason,
    };
    match answer {
        Ok(Answer::Trained(update)) => Event::Updated {
            client,
            assignment,
            update,
        },
        Ok(Answer::Judged(judgement)) => Event::Judged {
            client,
            assignment,
            judgement,
        },
        Ok(_) => gave_up(NOT_ASKED.into()),
        Err(error) if error.kind == ErrorKind::Unavailable => Event::Gone { client },
        Err(error) => gave_up(error.message),
    }
}

/// Who cannot be reached may be starting again: it is asked again for a while, which begins when it is missed and not when it was asked. A
/// link that breaks late in a long training is as likely to stand again as one that breaks at once.
pub(super) async fn ask_patiently(
    clients: &dyn Clients,
    order: Order,
    time: Duration,
    patience: Duration,
) -> Result<Answer, TaskError> {
    let started = Instant::now();
    let mut missed: Option<Instant> = None;
    loop {
        let asked = Instant::now();
        let left = time.saturating_sub(started.elapsed());
        let error = match clients.ask(order.clone(), Some(left)).await {
            Err(error) if error.kind == ErrorKind::Unavailable => error,
            answer => return answer,
        };
        // Nobody dials for so long: it was there meanwhile.
        if asked.elapsed() >= LOST_AFTER {
            missed = None;
        }
        let since = *missed.get_or_insert_with(Instant::now);
        if since.elapsed() >= patience || started.elapsed() >= time {
            return Err(error);
        }
        tracing::debug!(client = order.client.0, %error, "asked again");
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// One whose link breaks after a while, as often as that.
    struct Breaks {
        after: Duration,
        times: usize,
        asked: Arc<AtomicUsize>,
    }

    impl Clients for Breaks {
        fn ask(&self, _: Order, _: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>> {
            let breaks = self.asked.fetch_add(1, Ordering::Relaxed) < self.times;
            let after = self.after;
            async move {
                if !breaks {
                    return Ok(Answer::Begun { model: Vec::new() });
                }
                tokio::time::sleep(after).await;
                Err(TaskError::unavailable("the link broke"))
            }
            .boxed()
        }
    }

    #[test]
    fn what_a_client_says_of_itself_is_what_the_run_is_told() {
        let described = Answer::Described {
            samples: 7,
            label_entropy: Some(0.5),
            charge: Some(0.3),
            link: Some(2e6),
            passes: Vec::new(),
            adapter_rank: Some(4),
            most_epsilon: Some(2.5),
        };
        let profile = Profile {
            samples: 7,
            label_entropy: Some(0.5),
            charge: Some(0.3),
            link: Some(Link {
                bytes_per_second: 2e6,
            }),
            adapter_rank: Some(4),
            most_epsilon: Some(2.5),
        };
        let client = ClientId(4);
        let told = here(client, &described);
        assert_eq!(told, Some(Event::Here { client, profile }));
        assert_eq!(here(client, &Answer::Begun { model: Vec::new() }), None);
    }

    async fn asked(times: usize, patience: Duration) -> (Result<Answer, TaskError>, usize) {
        let asked = Arc::new(AtomicUsize::new(0));
        let breaks = Breaks {
            after: Duration::from_millis(120),
            times,
            asked: asked.clone(),
        };
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let order = Order::new(&RunId("0a".into()), &run, ClientId(0), Work::Describe);
        let answer = ask_patiently(&breaks, order, Duration::from_secs(600), patience).await;
        (answer, asked.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn patience_begins_when_a_client_is_missed() {
        // The first answer alone takes longer than the patience.
        let (answer, times) = asked(1, Duration::from_millis(100)).await;
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(times, 2);
        let (answer, times) = asked(9, Duration::from_millis(100)).await;
        assert_eq!(answer.unwrap_err().kind, ErrorKind::Unavailable);
        assert_eq!(times, 2, "there is an end to it");
        let (answer, times) = asked(1, Duration::ZERO).await;
        assert!(answer.is_err());
        assert_eq!(times, 1);
    }
}
