use crate::told;
use http::{HeaderMap, HeaderName, HeaderValue};
use karman_node::{Chosen, Inferred, Leg, Node, Ran};
use karman_types::{NodeId, TaskId, Tier};

/// A response has these headers, and those of its kind, its length and its request: room for all is made once.
const MOST_HEADERS: usize = 12;

/// Who ran what, and why: what the node said that ran it.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) model: String,
    pub(crate) ran_on: Option<String>,
    pub(crate) node: NodeId,
    pub(crate) tier: Tier,
    /// Which part ran where, in order; empty for tasks.
    pub(crate) legs: Vec<Leg>,
    pub(crate) why: String,
    /// Where one of several was chosen: under which `karman why` tells of it.
    pub(crate) request: Option<TaskId>,
}

impl Decision {
    pub(super) fn of_model(model: &str, ran: &Inferred) -> Self {
        Self {
            model: model.to_owned(),
            ran_on: Some(ran.ran_on.clone()),
            node: ran.node.0,
            tier: ran.node.1,
            legs: ran.legs.clone(),
            why: ran.why.clone(),
            request: None,
        }
    }

    /// The same for one that was chosen among several.
    pub(super) fn chosen(self, request: TaskId) -> Self {
        Self {
            request: Some(request),
            ..self
        }
    }

    /// Of a task, or a model as a task, that was chosen among several.
    pub(super) fn of_chosen(chosen: &Chosen) -> Self {
        Self {
            model: chosen.model().to_owned(),
            ran_on: None,
            node: chosen.node.0,
            tier: chosen.node.1,
            legs: Vec::new(),
            why: chosen.why.to_string(),
            request: Some(chosen.request),
        }
    }

    pub(super) fn of_task(task: &str, ran: &Ran, here: &Node) -> Self {
        let (node, tier) = ran
            .node
            .unwrap_or_else(|| (here.runtime().id(), here.offer().tier));
        let why = match (&ran.why, ran.node) {
            (Some(why), _) => why.as_str(),
            (None, None) => "this node has the task",
            (None, Some(_)) => "the only node in reach that offers the task",
        };
        Self {
            model: task.to_owned(),
            ran_on: ran.ran_on.clone(),
            node,
            tier,
            legs: Vec::new(),
            why: why.to_owned(),
            request: ran.decision,
        }
    }

    /// Where each part ran, as `0@9c01d2e7 1@51aa03f0`; nothing for a task.
    pub(crate) fn cut(&self) -> Option<String> {
        let ran = self.legs.iter().filter(|leg| leg.failed.is_none());
        let parts: Vec<String> = ran
            .map(|leg| format!("{}@{}", leg.stage, leg.node.short()))
            .collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }

    /// As headers of a response, which are also metadata of gRPC.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(MOST_HEADERS);
        let mut put = |name: HeaderName, value: Option<String>| {
            // What is no header (a line break, say) is left out rather than let through.
            if let Some(Ok(value)) = value.map(HeaderValue::try_from) {
                headers.insert(name, value);
            }
        };
        put(told::MODEL, Some(self.model.clone()));
        put(told::NODE, Some(self.node.to_string()));
        put(told::TIER, Some(self.tier.to_string()));
        put(told::RAN_ON, self.ran_on.clone());
        put(told::CUT, self.cut());
        put(told::WHY, Some(self.why.clone()));
        put(told::DECISION, self.request.map(|request| request.to_string()));
        headers
    }
}
