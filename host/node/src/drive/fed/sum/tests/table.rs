use super::*;
use crate::drive::fed::testing::frame;
use karman_fed::secure::{
    Closed, Graph, Member, Ring, Server, Session, Settings, ToClient, ToServer, UnmaskRequest,
};
use karman_fed::{AssignmentId, Run};
use karman_tensor::encode::Encoding;

/// Four clients in a sum of three numbers, with a driver that says what a test has it say.
pub(super) struct Table {
    pub(super) people: Vec<Person>,
    /// The id of the run that the driver speaks of.
    pub(super) run: &'static str,
    pub(super) settings: Settings,
}

impl Table {
    pub(super) fn new() -> Self {
        let mut table = Self {
            people: (0..4).map(Person::new).collect(),
            run: "0a",
            settings: Settings {
                round: Digest::of(b"nothing"),
                graph: Graph::Complete,
                seed: Digest::of(b"seed"),
                length: 4,
                ring: Ring::BITS_64,
                least: 2,
            },
        };
        table.settings.round = table.about(&Self::lesson());
        table
    }

    /// What the sum of this lesson is about.
    pub(super) fn about(&self, lesson: &Lesson) -> Digest {
        let common = Common::of((PLUGIN, file()), &self.order(0, 1));
        lesson.digest(&common).unwrap()
    }

    pub(super) fn order(&self, number: usize, assignment: u64) -> Order {
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let work = Work::Sum {
            assignment: AssignmentId(assignment),
            step: Box::new(Step::Who),
        };
        Order::new(&RunId(self.run.into()), &run, ClientId(number as u64), work)
    }

    pub(super) async fn says(
        &self,
        number: usize,
        assignment: u64,
        step: Step,
    ) -> Result<ToServer, TaskError> {
        let order = self.order(number, assignment);
        match self.people[number].step(&order, step).await? {
            Answered::Says(says) | Answered::Trained { says, .. } => Ok(says),
            other @ Answered::Who { .. } => panic!("{other:?}"),
        }
    }

    pub(super) async fn shows(&self, number: usize, assignment: u64) -> Result<Credential, TaskError> {
        let order = self.order(number, assignment);
        match self.people[number].step(&order, Step::Who).await? {
            Answered::Who { credential, .. } => Ok(credential),
            other => panic!("{other:?}"),
        }
    }

    /// What all of them show.
    pub(super) async fn invited(&self, assignment: u64) -> Vec<Credential> {
        let mut invited = Vec::new();
        for number in 0..self.people.len() {
            invited.push(self.shows(number, assignment).await.unwrap());
        }
        invited
    }

    pub(super) fn join(&self, invited: &[Credential]) -> Step {
        Step::Join {
            settings: self.settings.clone(),
            invited: Arc::new(invited.to_vec()),
        }
    }

    pub(super) fn lesson() -> Lesson {
        let run = Run::from_toml("name = 'x'\nrounds = 1\n").unwrap();
        let course = Course {
            epochs: 1,
            batch: 1,
            learning_rate: 1.0,
            most_steps: None,
            proximal: 0.0,
            rows: 1,
            stateless: false,
            counted: None,
            seed: 7,
            encoding: Encoding::F32,
            pack: false,
        };
        Lesson {
            version: 0,
            course,
            model: Arc::new(vec![("weight".into(), frame(&[0.0, 0.0, 0.0]))]),
            grid: run.grid(),
            weights: run.weights,
            limits: run.limits,
        }
    }

    fn server(&self, invited: &[Credential]) -> Server {
        let member = |credential: &Credential| Member {
            node: NodeId::of_key(&credential.key),
            key: credential.key,
            once: credential.once,
        };
        let members = invited.iter().map(member).collect();
        let session = Session::new(self.settings.clone(), members).unwrap();
        Server::new(Arc::new(session))
    }

    /// Goes on honestly, until the driver is to say this to the first of them. Everybody is asked everything twice, as if answers
    /// were lost on their way.
    async fn up_to(&self, assignment: u64, until: impl Fn(&ToClient) -> bool) -> ToClient {
        let invited = self.invited(assignment).await;
        let mut server = self.server(&invited);
        for (number, person) in self.people.iter().enumerate() {
            let says = self.twice(number, assignment, self.join(&invited)).await;
            server.receive(person.node(), says).unwrap();
        }
        loop {
            let Closed::Next(messages) = server.close().unwrap() else {
                panic!("it is over")
            };
            let first = self.people[0].node();
            let (_, to_first) = messages.iter().find(|(node, _)| *node == first).unwrap();
            if until(to_first) {
                return to_first.clone();
            }
            for (node, said) in messages {
                let number = self.people.iter().position(|one| one.node() == node).unwrap();
                let step = match said {
                    ToClient::Shares { .. } => {
                        let lesson = Box::new(Self::lesson());
                        Step::Train { said, lesson }
                    }
                    said => Step::Said(said),
                };
                let says = self.twice(number, assignment, step).await;
                server.receive(node, says).unwrap();
            }
        }
    }

    async fn twice(&self, number: usize, assignment: u64, step: Step) -> ToServer {
        let says = self.says(number, assignment, step.clone()).await.unwrap();
        assert_eq!(self.says(number, assignment, step).await.unwrap(), says);
        says
    }

    /// The neighbours' shares for the first: it is to train.
    pub(super) async fn before_training(&self, assignment: u64) -> ToClient {
        self.up_to(assignment, |said| matches!(said, ToClient::Shares { .. }))
            .await
    }

    /// What the first is told when it is to reveal.
    pub(super) async fn before_unmasking(&self, assignment: u64) -> UnmaskRequest {
        let unmasks = |said: &ToClient| matches!(said, ToClient::Unmask(_));
        match self.up_to(assignment, unmasks).await {
            ToClient::Unmask(request) => request,
            other => panic!("{other:?}"),
        }
    }
}
