//! From a file to a workflow that holds together.

use super::error::value;
use super::file::{File, TaskTable};
use super::links::{Link, links, order};
use super::{Edge, FlowTask, Workflow, WorkflowError};
use crate::{SloError, TaskContract};
use std::collections::BTreeSet;
use std::time::Duration;

impl TryFrom<File> for Workflow {
    type Error = WorkflowError;

    fn try_from(file: File) -> Result<Self, WorkflowError> {
        check_values(&file)?;
        let names: Vec<&String> = file.task.keys().collect();
        let links = links(&file)?;
        let order = order(&names, &links)?;
        check_ways(&file, &names, &links, &order)?;

        let mut place = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new;
        }
        let edges: Vec<Edge> = links.into_iter().map(|link| link.placed(&place)).collect();
        let of = |end: fn(&Edge) -> usize| {
            let mut lists = vec![Vec::new(); order.len()];
            for (n, edge) in edges.iter().enumerate() {
                lists[end(edge)].push(n);
            }
            lists
        };
        let (into, from) = (of(|edge| edge.to), of(|edge| edge.from));
        check_defaults(&names, &order, &edges, &from)?;
        let mut tasks: Vec<_> = file
            .task
            .into_iter()
            .map(|(name, table)| Some(task(name, table)))
            .collect();
        Ok(Self {
            name: file.name,
            deadline: file.deadline,
            slo: file.slo,
            select: file.select,
            tasks: order.iter().filter_map(|&old| tasks[old].take()).collect(),
            edges,
            into,
            from,
        })
    }
}

fn task(name: String, table: TaskTable) -> FlowTask {
    FlowTask {
        run: table
            .run
            .or_else(|| table.capability.clone())
            .unwrap_or_else(|| name.clone()),
        capability: table.capability,
        inputs: table.inputs,
        outputs: table.outputs,
        name,
        each: table.each,
        at_once: table.at_once,
        retries: table.retries,
        pause: table.pause,
        timeout: table.timeout,
        deadline: table.deadline,
        undo: table.undo,
        with: table.with,
    }
}

fn check_values(file: &File) -> Result<(), WorkflowError> {
    plain_name("`name`", &file.name)?;
    if file.task.is_empty() {
        return Err(WorkflowError::Empty);
    }
    let edges = file.edge.len() + file.task.values().map(|table| table.after.len()).sum::<usize>();
    for (what, count, most) in [
        ("tasks", file.task.len(), Workflow::MAX_TASKS),
        ("edges", edges, Workflow::MAX_EDGES),
    ] {
        if count > most {
            return Err(WorkflowError::TooMany { what, count, most });
        }
    }
    let no_time = |field: String, time: Option<Duration>| match time {
        Some(Duration::ZERO) => Err(value(field, "is 0; leave it out, or give it time")),
        _ => Ok(()),
    };
    no_time("deadline".into(), file.deadline)?;
    check_slo(file)?;
    check_select(file)?;
    for (name, table) in &file.task {
        plain_name("a task", name)?;
        let field = |key: &str| format!("task.{name}.{key}");
        no_time(field("timeout"), table.timeout)?;
        no_time(field("deadline"), table.deadline)?;
        if table.at_once == 0 {
            return Err(value(field("at-once"), "is 0; at least 1 run must be possible"));
        }
        if table.run.as_ref().is_some_and(String::is_empty) {
            return Err(value(field("run"), "is empty; name a task, or leave it out"));
        }
        check_contract(name, table)?;
        if let (Some(own), Some(whole)) = (table.deadline, file.deadline)
            && own > whole
        {
            return Err(value(field("deadline"), "is later than that of the workflow"));
        }
    }
    Ok(())
}

fn check_slo(file: &File) -> Result<(), WorkflowError> {
    let Some(slo) = &file.slo else { return Ok(()) };
    slo.check().map_err(|error| match error {
        SloError::Value {
            field,
            value: found,
            bounds,
        } => value(
            format!("slo.{field}"),
            &format!("is {found}; it must be {bounds}"),
        ),
        SloError::Text(error) => error.into(),
    })?;
    match file.task.values().any(|table| table.capability.is_some()) {
        true => Ok(()),
        false => Err(value(
            "slo".into(),
            "binds nothing: no task names a `capability`, so there is no choice to make",
        )),
    }
}

fn check_select(file: &File) -> Result<(), WorkflowError> {
    let Some(select) = &file.select else {
        return Ok(());
    };
    plain_name("`select`", select)?;
    match file.task.values().any(|table| table.capability.is_some()) {
        true => Ok(()),
        false => Err(value(
            "select".into(),
            "chooses nothing: no task names a `capability`, so there is no choice to make",
        )),
    }
}

fn check_contract(name: &str, table: &TaskTable) -> Result<(), WorkflowError> {
    if table.capability.is_some() && table.run.is_some() {
        return Err(value(
            format!("task.{name}.capability"),
            "stands beside `run`; name what it does, or who does it",
        ));
    }
    let contract = TaskContract {
        capability: table.capability.clone().unwrap_or_else(|| "task".into()),
        inputs: table.inputs.clone(),
        outputs: table.outputs.clone(),
        ..TaskContract::default()
    };
    contract.check().map_err(|error| {
        let field = format!("task.{name}.{}", error.field());
        value(field, &format!("does not hold together: {error}"))
    })
}

fn plain_name(field: &str, name: &str) -> Result<(), WorkflowError> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match !name.is_empty() && name.len() <= 64 && name.chars().all(plain) {
        true => Ok(()),
        false => Err(WorkflowError::Name {
            field: field.into(),
            name: name.into(),
        }),
    }
}

/// One task without an edge into it is where the workflow starts. Of several, `start` has to say that they are meant: else a
/// forgotten edge would go unnoticed.
fn check_ways(file: &File, names: &[&String], links: &[Link], order: &[usize]) -> Result<(), WorkflowError> {
    let led_to: BTreeSet<usize> = links.iter().map(|Link(edge)| edge.to).collect();
    let first: Vec<usize> = order
        .iter()
        .copied()
        .filter(|task| !led_to.contains(task))
        .collect();
    let named = |task: &usize| file.start.contains(names[*task]);
    match first.iter().find(|task| !named(task)) {
        Some(_) if first.len() == 1 && file.start.is_empty() => {}
        None => {}
        // Without `start`, the first of them is taken for the beginning.
        Some(task) => {
            let task = if file.start.is_empty() { &first[1] } else { task };
            let task = names[*task].clone();
            return Err(WorkflowError::Unreachable { task });
        }
    }
    match file
        .start
        .iter()
        .find(|name| !first.iter().any(|&task| names[task] == *name))
    {
        None => Ok(()),
        Some(name) => Err(value(
            "start".into(),
            &format!("names `{name}`, which waits for another task"),
        )),
    }
}

fn check_defaults(
    names: &[&String],
    order: &[usize],
    edges: &[Edge],
    from: &[Vec<usize>],
) -> Result<(), WorkflowError> {
    for (task, of_task) in from.iter().enumerate() {
        let some = |test: fn(&Edge) -> bool| of_task.iter().any(|&edge| test(&edges[edge]));
        if some(|edge| edge.default) && !some(|edge| edge.when.is_some()) {
            let name = names[order[task]];
            let field = format!("edge from {name}");
            return Err(value(
                field,
                "is the default, but no other edge of that task has a predicate",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Predicate;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn error(text: &str) -> WorkflowError {
        Workflow::from_toml(&format!("name = 'flow'\n{text}")).unwrap_err()
    }

    #[test]
    fn what_is_wrong_is_named() {
        let message = |text: &str| error(text).to_string();
        assert_eq!(message(""), "workflow: it has no task; add a table `[task.NAME]`");
        assert_eq!(
            message("[task.a]\nretrys = 1"),
            "workflow: unknown key `retrys` at line 3; did you mean `retries`?"
        );
        assert_eq!(
            message("[task.segment]\n[task.alert]\nafter = ['segmnt']"),
            "workflow: task.alert.after: there is no task `segmnt`; did you mean `segment`?"
        );
        assert_eq!(
            message(
                "[task.b]\n[task.a]\nafter = ['c']\n[task.c]\nafter = ['d']\n[task.d]\nafter = ['a', 'b']"
            ),
            "workflow: these tasks wait for each other: d → c → a; a workflow has no cycle"
        );
        assert_eq!(
            message("[task.a]\nafter = ['a']"),
            "workflow: these tasks wait for each other: a; a workflow has no cycle"
        );
        assert_eq!(
            message("[task.a]\n[task.b]"),
            "workflow: no edge leads to `b`: add one, or name it in `start`"
        );
        assert_eq!(
            message("start = ['a', 'b']\n[task.a]\n[task.b]\nafter = ['a']"),
            "workflow: `start` names `b`, which waits for another task"
        );
        assert!(matches!(
            error("[task.a]\n[task.b]\nafter = ['a', 'a']"),
            WorkflowError::RepeatedEdge { .. }
        ));
        let lone = "[task.a]\n[task.b]\n[[edge]]\nfrom = 'a'\nto = 'b'\ndefault = true";
        assert!(message(lone).contains("no other edge of that task has a predicate"));
        assert!(message("deadline = '1 s'\n[task.a]\ndeadline = '2 s'").contains("task.a.deadline"));
        assert!(message("[task.a]\ntimeout = '0 ms'").contains("task.a.timeout"));
        assert!(message("[task.A]").contains("`A`"));
        assert!(message("[task.a]\nrun = 'b'\ncapability = 'c/d'").contains("stands beside `run`"));
        assert!(message("[task.a]\ncapability = 'Vision'").contains("task.a.capability"));
        assert!(message("[task.a]\ninputs = [{ name = '', type = 'f32' }]").contains("task.a.inputs"));
        assert!(message("[slo]\nrequests = 0\n[task.a]\ncapability = 'c'").contains("slo.requests"));
        assert!(message("[slo]\nrequests = 9\n[task.a]").contains("no choice to make"));
        let comparison =
            "[task.a]\n[task.b]\n[[edge]]\nfrom = 'a'\nto = 'b'\nwhen = { field = 'x', at-lest = 1 }";
        assert!(
            message(comparison).contains("did you mean `at-least`?"),
            "{}",
            message(comparison)
        );
    }

    #[test]
    fn contracts_and_limits_read_what_they_write() {
        let text = r#"
            name = "digits"
            [slo]
            requests = 100
            accuracy = 0.9
            latency-p95 = "50 ms"
            [task.classify]
            capability = "vision/classification/digits"
            inputs = [{ name = "image", type = "f32", shape = [1, 1, 8, 8] }]
            outputs = [{ name = "logits", type = "f32", shape = [1, 10], unit = "1" }]
            retries = 1
        "#;
        let flow = Workflow::from_toml(text).unwrap();
        assert_eq!(Workflow::from_toml(&flow.to_toml()), Ok(flow.clone()));
        let task = &flow.tasks()[0];
        assert_eq!(task.run, "vision/classification/digits");
        assert_eq!((task.inputs.len(), task.outputs.len()), (1, 1));
        assert_eq!(flow.slo().unwrap().late_allowed(), 5);
    }

    fn arbitrary() -> impl Strategy<Value = String> {
        proptest::collection::vec((0usize..8, 0usize..8, 0u8..3), 0..16).prop_map(|links| {
            let mut text = String::from("name = 'flow'\nstart = [");
            let links: BTreeMap<(usize, usize), u8> = links
                .into_iter()
                .filter(|(a, b, _)| a < b)
                .map(|(a, b, kind)| ((a, b), kind))
                .collect();
            for task in (0..8).filter(|task| links.keys().all(|(_, to)| to != task)) {
                text += &format!("'t{task}',");
            }
            text += "]\n";
            for task in 0..8 {
                text += &format!("[task.t{task}]\nretries = {task}\n");
            }
            for ((from, to), kind) in links {
                let when = [
                    "",
                    "when = { field = 'x', less-than = 1.5 }",
                    "when = { field = 'y', exists = true }",
                ];
                text += &format!(
                    "[[edge]]\nfrom = 't{from}'\nto = 't{to}'\n{}\n",
                    when[usize::from(kind)]
                );
            }
            text
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_workflow_reads_what_it_writes(text in arbitrary()) {
            let flow = Workflow::from_toml(&text).unwrap();
            prop_assert!(flow.edges().iter().all(|edge| edge.from < edge.to));
            prop_assert_eq!(&Workflow::from_toml(&flow.to_toml()).unwrap(), &flow);
            let json = serde_json::to_string(&flow).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Workflow>(&json).unwrap(), &flow);
        }

        #[test]
        fn no_text_panics(text in "[a-z\\[\\]\\.='{}, \n0-9-]{0,80}") {
            let _ = Workflow::from_toml(&text);
            let _ = toml::from_str::<Predicate>(&text);
        }
    }
}
