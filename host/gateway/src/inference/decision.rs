use crate::headers;
use http::{HeaderMap, HeaderName, HeaderValue};
use karman_node::{Chosen, Inferred, Leg, Node, Ran};
use karman_tensor::Tensor;
use karman_types::{NodeId, TaskId, Tier};
use std::borrow::Cow;
use std::fmt::Write;

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
    pub(crate) why: Cow<'static, str>,
    /// Where one of several was chosen: under which `karman why` tells of it.
    pub(crate) request: Option<TaskId>,
}

impl Decision {
    /// What a model gave, and who ran it.
    pub(super) fn of_model(model: String, ran: Inferred) -> (Vec<(String, Tensor)>, Self) {
        let decision = Self {
            model,
            ran_on: Some(ran.ran_on),
            node: ran.node.0,
            tier: ran.node.1,
            legs: ran.legs,
            why: ran.why,
            request: None,
        };
        (ran.results, decision)
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
            why: chosen.why.to_string().into(),
            request: Some(chosen.request),
        }
    }

    pub(super) fn of_task(task: &str, ran: &Ran, here: &Node) -> Self {
        let (node, tier) = ran
            .node
            .unwrap_or_else(|| (here.runtime().id(), here.runtime().tier()));
        let why = match (&ran.why, ran.node) {
            (Some(why), _) => why.clone().into(),
            (None, None) => "this node has the task".into(),
            (None, Some(_)) => "the only node in reach that offers the task".into(),
        };
        Self {
            model: task.to_owned(),
            ran_on: ran.ran_on.clone(),
            node,
            tier,
            legs: Vec::new(),
            why,
            request: ran.decision,
        }
    }

    /// Where each part ran, as `0@9c01d2e7 1@51aa03f0`; nothing for a task.
    pub(crate) fn cut(&self) -> Option<String> {
        let mut cut = String::new();
        for leg in self.legs.iter().filter(|leg| leg.failed.is_none()) {
            let between = if cut.is_empty() { "" } else { " " };
            // Writing to a string cannot fail.
            let _ = write!(cut, "{between}{}@{}", leg.stage, leg.node.short());
        }
        (!cut.is_empty()).then_some(cut)
    }

    /// With how many requests it was run at once, where it was not the only one.
    fn batch(&self) -> Option<u32> {
        let done = self.legs.iter().filter(|leg| leg.failed.is_none());
        done.filter_map(|leg| leg.batch).max()
    }

    /// The early exit that answered, where it was not all of the model.
    fn exit(&self) -> Option<u32> {
        self.legs.iter().find_map(|leg| leg.exit)
    }

    /// As headers of a response, which are also metadata of gRPC. The gateway's own node, which has run most of what it answers, is
    /// written once and for all.
    pub(crate) fn headers(&self, here: &Here) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(MOST_HEADERS);
        // What is no header (a line break, say) is left out rather than let through.
        let mut put = |name: HeaderName, value: Option<HeaderValue>| {
            value.map(|value| headers.insert(name, value));
        };
        put(headers::MODEL, text(&self.model));
        put(headers::NODE, here.named(self.node));
        put(headers::TIER, Some(HeaderValue::from_static(self.tier.name())));
        put(headers::RAN_ON, self.ran_on.as_deref().and_then(text));
        put(headers::CUT, here.cut(self));
        put(headers::BATCH, self.batch().map(HeaderValue::from));
        put(headers::EXIT, self.exit().map(HeaderValue::from));
        put(
            headers::WHY,
            match &self.why {
                Cow::Borrowed(why) => Some(HeaderValue::from_static(why)),
                Cow::Owned(why) => text(why),
            },
        );
        let request = self.request.map(|request| request.to_string());
        put(headers::DECISION, request.as_deref().and_then(text));
        headers
    }
}

fn text(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_str(text).ok()
}

/// The gateway's own node, as headers name it.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    id: NodeId,
    name: Option<HeaderValue>,
    /// The cut of what it has run whole.
    whole: Option<HeaderValue>,
}

impl Here {
    pub(super) fn of(node: &Node) -> Self {
        let id = node.runtime().id();
        Self {
            id,
            name: text(&id.to_string()),
            whole: text(&format!("0@{}", id.short())),
        }
    }

    fn named(&self, node: NodeId) -> Option<HeaderValue> {
        match node == self.id {
            true => self.name.clone(),
            false => text(&node.to_string()),
        }
    }

    fn cut(&self, decision: &Decision) -> Option<HeaderValue> {
        match &decision.legs[..] {
            [leg] if leg.stage == 0 && leg.node == self.id && leg.failed.is_none() => self.whole.clone(),
            _ => text(&decision.cut()?),
        }
    }
}
