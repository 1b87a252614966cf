//! What happens to a run of a workflow, told as it happens: server-sent events (WHATWG, HTML, section 9.2). Each has an id, and who comes
//! again with the last one, as browsers do by themselves, is told what came after it.

use super::answer::{Refusal, error_json};
use super::extract::InPath;
use super::tasks::read;
use crate::drive::{FlowEvent, Follower, Known};
use crate::node::Node;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream::unfold;
use karman_types::TaskError;
use std::time::Duration;

/// The id of the last event that the caller knows.
const LAST: &str = "last-event-id";
/// How long nothing is said. What stands between gives connections up that are silent for a minute, or for half of one.
const SILENCE: Duration = Duration::from_secs(15);
/// Has nginx hand on what comes at once.
const UNBUFFERED: [(&str, &str); 1] = [("x-accel-buffering", "no")];

/// `GET /flows/ID/events`.
pub(super) async fn events(
    State(node): State<Node>,
    InPath(run): InPath<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let (run, known) = (read(&run)?, known(&headers)?);
    let Some(follower) = node.follow(run, known).await? else {
        // By this a browser is told not to come again.
        return Ok(StatusCode::NO_CONTENT.into_response());
    };
    let events = Sse::new(unfold(follower, next)).keep_alive(KeepAlive::new().interval(SILENCE));
    Ok((UNBUFFERED, events).into_response())
}

fn known(headers: &HeaderMap) -> Result<Known, TaskError> {
    let Some(last) = headers.get(LAST) else {
        return Ok(Known::Changes(0));
    };
    let known = last.to_str().ok().and_then(Known::read);
    known.ok_or_else(|| {
        TaskError::invalid("`last-event-id` is no id of an event: a number, or `end`").with_field(LAST)
    })
}

async fn next(mut follower: Follower) -> Option<(Result<Event, axum::Error>, Follower)> {
    let event = match follower.next().await? {
        Ok(FlowEvent { id, name, data }) => Event::default().id(id).event(name).json_data(data),
        // It has no id: what was told before is what the caller knows.
        Err(error) => Event::default().event("cut").json_data(error_json(&error)),
    };
    Some((event, follower))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_knows_stands_in_a_header() {
        let of = |last: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(LAST, last.parse().unwrap());
            known(&headers)
        };
        assert_eq!(known(&HeaderMap::new()), Ok(Known::Changes(0)));
        assert_eq!((of("3"), of("end")), (Ok(Known::Changes(3)), Ok(Known::End)));
        let wrong = of("three").unwrap_err();
        assert_eq!(wrong.field.as_deref(), Some(LAST), "{wrong}");
    }
}
