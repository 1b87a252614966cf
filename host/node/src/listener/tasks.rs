//! Accepted tasks over HTTP: how far they are, their results, and withdrawing them. Whoever knows the id may ask: it is as good as
//! random. Only the operator sees them all.

use super::answer::Refusal;
use super::extract::{InPath, InQuery};
use super::pages::set_apart;
use super::public::response_of;
use crate::drive::{Ran, TaskStatus};
use crate::node::Node;
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode};
use axum::response::{IntoResponse, Json};
use axum::routing::{get, post};
use karman_types::{NodeId, TaskError, TaskId, parse_duration};
use serde::Deserialize;
use std::time::Duration;

/// The longest that one request waits for a result.
const MOST_WAIT: Duration = Duration::from_secs(60);

/// What anyone may ask who knows the id of a task.
pub(crate) fn router() -> Router<Node> {
    Router::new()
        .route("/accepted/{task}", get(status).delete(remove))
        .route("/accepted/{task}/result", get(result))
}

/// What the operator may ask besides.
pub(crate) fn operator() -> Router<Node> {
    router()
        .route("/accepted", get(list))
        .route("/drain", post(drain))
}

async fn list(State(node): State<Node>) -> Json<Vec<TaskStatus>> {
    Json(node.tasks().list())
}

async fn status(State(node): State<Node>, InPath(task): InPath<String>) -> Result<Json<TaskStatus>, Refusal> {
    Ok(Json(node.tasks().status(read(&task)?).await?))
}

/// What is asked of a task or a run that is deleted.
#[derive(Deserialize)]
pub(super) struct Removal {
    /// Refuses one that has ended: its result stays.
    #[serde(default)]
    pub(super) withdraw: bool,
}

/// Withdraws a task that has not ended; forgets the result of one that has, unless it is only to be withdrawn.
async fn remove(
    State(node): State<Node>,
    InPath(task): InPath<String>,
    InQuery(Removal { withdraw }): InQuery<Removal>,
) -> Result<Json<TaskStatus>, Refusal> {
    let (task, tasks) = (read(&task)?, node.tasks());
    Ok(Json(match withdraw {
        true => tasks.withdraw(task).await?,
        false => tasks.remove(task).await?,
    }))
}

/// How long a request waits for an end.
#[derive(Deserialize)]
pub(super) struct Wait {
    #[serde(default)]
    wait: Option<String>,
}

impl Wait {
    pub(super) fn time(&self) -> Result<Duration, TaskError> {
        match self.wait.as_deref().map(parse_duration) {
            None => Ok(Duration::ZERO),
            Some(Ok(wait)) => Ok(wait.min(MOST_WAIT)),
            Some(Err(error)) => Err(TaskError::invalid(error.to_string()).with_field("wait")),
        }
    }
}

/// The result as the task answered it; 202 with the status while there is none. Any page may lead a browser here, so what it shows is
/// of no origin of ours.
async fn result(
    State(node): State<Node>,
    InPath(task): InPath<String>,
    InQuery(wait): InQuery<Wait>,
) -> Result<Response<Body>, Refusal> {
    let task = read(&task)?;
    Ok(match node.tasks().outcome(task, wait.time()?).await? {
        Some(outcome) => {
            let mut answer = response_of(outcome.into_result()?, &Ran::default());
            set_apart(answer.headers_mut());
            answer
        }
        None => (StatusCode::ACCEPTED, Json(node.tasks().status(task).await?)).into_response(),
    })
}

pub(super) fn read(task: &str) -> Result<TaskId, TaskError> {
    task.parse()
        .map_err(|error: String| TaskError::invalid(error).with_field("task"))
}

/// Takes the node out of service; answers when nothing runs any more.
async fn drain(State(node): State<Node>) -> Json<Vec<NodeId>> {
    Json(node.drain().await)
}
