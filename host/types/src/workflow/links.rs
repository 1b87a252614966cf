//! The edges of a file, and the order in which they have its tasks.

use super::error::value;
use super::file::{EdgeTable, File};
use super::{Edge, WorkflowError};
use crate::unknown_key::nearest;
use std::collections::{BTreeMap, BTreeSet};

/// An edge between tasks by their place in the file, which is by name.
pub(super) struct Link(pub(super) Edge);

impl Link {
    pub(super) fn placed(self, place: &[usize]) -> Edge {
        let Edge { from, to, .. } = self.0;
        Edge {
            from: place[from],
            to: place[to],
            ..self.0
        }
    }
}

/// All edges: those of `after`, then those of `[[edge]]`.
pub(super) fn links(file: &File) -> Result<Vec<Link>, WorkflowError> {
    let places: BTreeMap<&str, usize> = file.task.keys().map(String::as_str).zip(0..).collect();
    let find = |field: String, name: &str| {
        places
            .get(name)
            .copied()
            .ok_or_else(|| WorkflowError::UnknownTask {
                field,
                name: name.into(),
                nearest: nearest(name, places.keys().copied()),
            })
    };
    for name in &file.start {
        find("start".into(), name)?;
    }
    let mut links = Vec::new();
    for (to, (name, table)) in file.task.iter().enumerate() {
        for before in &table.after {
            let from = find(format!("task.{name}.after"), before)?;
            links.push(Link(Edge {
                from,
                to,
                when: None,
                default: false,
            }));
        }
    }
    for (
        n,
        EdgeTable {
            from,
            to,
            when,
            default,
        },
    ) in file.edge.iter().enumerate()
    {
        let field = |end: &str| format!("edge {} `{end}`", n + 1);
        if when.is_some() && *default {
            return Err(value(
                field("default"),
                "stands beside `when`; an edge has one of them",
            ));
        }
        links.push(Link(Edge {
            from: find(field("from"), from)?,
            to: find(field("to"), to)?,
            when: when.clone(),
            default: *default,
        }));
    }
    let mut seen = BTreeSet::new();
    let names: Vec<_> = file.task.keys().collect();
    for Link(Edge { from, to, .. }) in &links {
        if !seen.insert((*from, *to)) {
            return Err(WorkflowError::RepeatedEdge {
                from: names[*from].clone(),
                to: names[*to].clone(),
            });
        }
    }
    Ok(links)
}

/// The tasks, each after those it waits for; of those that could come next, always the first by name.
pub(super) fn order(names: &[&String], links: &[Link]) -> Result<Vec<usize>, WorkflowError> {
    let mut waits = vec![0usize; names.len()];
    let mut next = vec![Vec::new(); names.len()];
    for Link(edge) in links {
        waits[edge.to] += 1;
        next[edge.from].push(edge.to);
    }
    let mut ready: BTreeSet<usize> = (0..names.len()).filter(|&task| waits[task] == 0).collect();
    let mut order = Vec::with_capacity(names.len());
    while let Some(task) = ready.pop_first() {
        order.push(task);
        for &after in &next[task] {
            waits[after] -= 1;
            if waits[after] == 0 {
                ready.insert(after);
            }
        }
    }
    match (0..names.len()).find(|&task| waits[task] > 0) {
        None => Ok(order),
        Some(stuck) => Err(cycle(names, links, &waits, stuck)),
    }
}

/// Goes back from a task that waits forever, always to one that waits forever too, until one comes again.
fn cycle(names: &[&String], links: &[Link], waits: &[usize], stuck: usize) -> WorkflowError {
    let mut path = vec![stuck];
    loop {
        let last = path[path.len() - 1];
        let before = links
            .iter()
            .find(|Link(edge)| edge.to == last && waits[edge.from] > 0);
        let Some(Link(edge)) = before else {
            unreachable!("a task that waits forever waits for one that does");
        };
        if let Some(first) = path.iter().position(|&task| task == edge.from) {
            let tasks = path[first..]
                .iter()
                .rev()
                .map(|&task| names[task].clone())
                .collect();
            return WorkflowError::Cycle { tasks };
        }
        path.push(edge.from);
    }
}
