//! The federated runs of a node.

use super::Held;
use crate::app::App;
use crate::control::escape;
use bytes::Bytes;
use http::Method;
use karman_node::{
    FedModel, FedStatus, not_driven, remove_stored_run, stored_model, stored_onnx, stored_run, stored_runs,
    unknown_run,
};
use karman_types::TaskError;

impl Held {
    /// # Errors
    /// What the node or the disk says.
    pub(crate) fn fed_runs(&self) -> Result<Vec<FedStatus>, TaskError> {
        match self {
            Self::Node(control) => control.get("/fed"),
            Self::Store(store) => stored_runs(store),
        }
    }

    /// The node's belongings, to look for this run among them.
    ///
    /// # Errors
    /// Those of [`Held::if_any`]; `invalid` where the node has never kept anything, and so not this run.
    pub(crate) fn with_fed_run(app: &App, name: &str) -> Result<Self, TaskError> {
        Self::if_any(app)?.ok_or_else(|| unknown_run(name))
    }

    /// One run, with its events from this one on.
    ///
    /// # Errors
    /// `invalid` when there is none of this name; what the node or the disk says.
    pub(crate) fn fed_run(&self, name: &str, after: usize) -> Result<FedStatus, TaskError> {
        match self {
            Self::Node(control) => control.get(&format!("/fed/{}?after={after}", escape(name))),
            Self::Store(store) => stored_run(store, name, after),
        }
    }

    /// Ends a run with the version that it has.
    ///
    /// # Errors
    /// `invalid` when nobody drives it; those of [`Held::fed_run`].
    pub(crate) fn stop_fed_run(&self, name: &str) -> Result<(), TaskError> {
        match self {
            Self::Node(control) => {
                let path = format!("/fed/{}/stop", escape(name));
                control.order(Method::POST, &path, Bytes::new())
            }
            Self::Store(store) => Err(not_driven(&stored_run(store, name, usize::MAX)?)),
        }
    }

    /// Removes a run that nobody drives now.
    ///
    /// # Errors
    /// `invalid` when it runs; those of [`Held::fed_run`].
    pub(crate) fn remove_fed_run(&self, name: &str) -> Result<(), TaskError> {
        match self {
            Self::Node(control) => {
                let path = format!("/fed/{}", escape(name));
                control.order(Method::DELETE, &path, Bytes::new())
            }
            Self::Store(store) => remove_stored_run(store, name),
        }
    }

    /// The model that a run has made so far.
    ///
    /// # Errors
    /// Those of [`Held::fed_run`]; `unavailable` when it has not begun.
    pub(crate) fn fed_model(&self, name: &str) -> Result<FedModel, TaskError> {
        match self {
            Self::Node(control) => control.get(&format!("/fed/{}/model", escape(name))),
            Self::Store(store) => stored_model(store, name),
        }
    }

    /// The ONNX file that a run began with, with what was learnt in it.
    ///
    /// # Errors
    /// Those of [`Held::fed_model`]; `invalid` when it began with none.
    pub(crate) fn fed_onnx(&self, app: &App, name: &str) -> Result<Vec<u8>, TaskError> {
        match self {
            Self::Node(control) => {
                let path = format!("/fed/{}/onnx", escape(name));
                let answer = control.send(Method::GET, &path, &[], Bytes::new())?;
                Ok(answer.into_body().into())
            }
            Self::Store(store) => stored_onnx(store, name, &app.config()?.models),
        }
    }
}
