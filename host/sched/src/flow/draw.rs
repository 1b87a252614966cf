use super::{Record, RunState, StepState};
use karman_types::{Edge, FlowTask, Workflow, format_duration};
use std::fmt::Write;

/// A workflow as text, each task after those it waits for, with how far it is where a record is given.
pub fn text(workflow: &Workflow, record: Option<&Record>) -> String {
    let mut text = String::from(workflow.name());
    if let Some(deadline) = workflow.deadline() {
        _ = write!(text, "   within {}", format_duration(deadline));
    }
    for (place, task) in workflow.tasks().iter().enumerate() {
        _ = write!(text, "\n{}", task.name);
        let about = about(task);
        if !about.is_empty() {
            _ = write!(text, "   {}", about.join(", "));
        }
        if let Some(record) = record {
            _ = write!(text, "   [{}]", progress(record, place));
        }
        for &edge in workflow.edges_into(place) {
            let edge = &workflow.edges()[edge];
            let from = &workflow.tasks()[edge.from].name;
            _ = write!(text, "\n  <- {from}");
            if let Some(label) = label(edge) {
                _ = write!(text, " {label}");
            }
        }
    }
    text.push('\n');
    text
}

/// What sets a task apart from one that just runs once.
pub(super) fn about(task: &FlowTask) -> Vec<String> {
    let runs = (task.run != task.name).then(|| format!("runs {}", task.run));
    let each = task.each.as_ref().map(|each| format!("each of `{each}`"));
    let retries = match task.retries {
        0 => None,
        1 => Some("1 retry".to_owned()),
        retries => Some(format!("{retries} retries")),
    };
    let timeout = task
        .timeout
        .map(|time| format!("{} an attempt", format_duration(time)));
    let deadline = task
        .deadline
        .map(|time| format!("within {}", format_duration(time)));
    let undo = task.undo.as_ref().map(|undo| format!("undone by {undo}"));
    [runs, each, retries, timeout, deadline, undo]
        .into_iter()
        .flatten()
        .collect()
}

/// When an edge is taken; nothing where it always is.
pub(super) fn label(edge: &Edge) -> Option<String> {
    match (&edge.when, edge.default) {
        (Some(when), _) => Some(format!("when {when}")),
        (None, true) => Some("otherwise".into()),
        (None, false) => None,
    }
}

/// How far a task is, in a word or two.
pub(super) fn progress(record: &Record, task: usize) -> String {
    let Some(step) = record.steps.get(task) else {
        return "unknown".into();
    };
    let count = |test: fn(&RunState) -> bool| step.runs.iter().filter(|run| test(&run.state)).count();
    let done = count(|state| matches!(state, RunState::Done(_)));
    match step.state {
        StepState::Waiting => "waits".into(),
        StepState::Skipped => "skipped".into(),
        StepState::Done => "done".into(),
        StepState::Running if count(|state| matches!(state, RunState::Failed(_))) > 0 => "failed".into(),
        StepState::Running if step.runs.len() > 1 => format!("{done} of {}", step.runs.len()),
        StepState::Running => "runs".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(in crate::flow) const FLOOD: &str = r#"
        name = "flood"
        deadline = "8 min"
        [task.capture]
        [task.segment]
        after = ["capture"]
        each = "tiles"
        retries = 2
        undo = "discard-mask"
        [task.alert]
        [task.archive]
        after = ["capture"]
        [[edge]]
        from = "segment"
        to = "alert"
        when = { field = "0.water", at-least = 0.2 }
        [[edge]]
        from = "segment"
        to = "archive"
        default = true
    "#;

    #[test]
    fn the_text_says_what_the_file_says() {
        let flood = Workflow::from_toml(FLOOD).unwrap();
        let expected = "flood   within 8 min\n\
            capture\n\
            segment   each of `tiles`, 2 retries, undone by discard-mask\n  <- capture\n\
            alert\n  <- segment when 0.water ≥ 0.2\n\
            archive\n  <- capture\n  <- segment otherwise\n";
        assert_eq!(text(&flood, None), expected);
        let record = Record::new(
            karman_types::TaskId::from_parts(0, 1),
            &flood,
            serde_json::json!({}),
        );
        assert!(text(&flood, Some(&record)).contains("\ncapture   [waits]\n"));
    }
}
