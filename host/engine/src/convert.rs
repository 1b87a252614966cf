//! Between the words of `karman-types` and those that the bindings generate.

use crate::capability::bindings::host::karman::task::types as wit;
use karman_types::{ErrorKind, TaskError, TaskRequest, TaskResponse};

pub(crate) fn request_to_guest(request: TaskRequest) -> wit::Request {
    wit::Request {
        content_type: request.content_type,
        metadata: request.metadata,
        body: request.body.into(),
    }
}

pub(crate) fn request_from_guest(request: wit::Request) -> TaskRequest {
    TaskRequest {
        content_type: request.content_type,
        metadata: request.metadata,
        body: request.body.into(),
    }
}

pub(crate) fn response_to_guest(response: TaskResponse) -> wit::Response {
    wit::Response {
        content_type: response.content_type,
        metadata: response.metadata,
        body: response.body.into(),
    }
}

pub(crate) fn response_from_guest(response: wit::Response) -> TaskResponse {
    TaskResponse {
        content_type: response.content_type,
        metadata: response.metadata,
        body: response.body.into(),
    }
}

pub(crate) fn error_to_guest(error: TaskError) -> wit::Error {
    let message = error.message;
    match error.kind {
        ErrorKind::Failed => wit::Error::Failed(message),
        ErrorKind::Invalid => wit::Error::Invalid(wit::InvalidInput {
            message,
            field: error.field,
        }),
        ErrorKind::Denied => wit::Error::Denied(message),
        ErrorKind::Unavailable => wit::Error::Unavailable(message),
        ErrorKind::Deadline => wit::Error::Deadline(message),
        ErrorKind::Limit => wit::Error::Limit(message),
        ErrorKind::Cancelled => wit::Error::Cancelled(message),
        ErrorKind::Internal => wit::Error::Internal(message),
    }
}

pub(crate) fn error_from_guest(error: wit::Error) -> TaskError {
    match error {
        wit::Error::Failed(message) => TaskError::failed(message),
        wit::Error::Invalid(input) => TaskError {
            field: input.field,
            ..TaskError::invalid(input.message)
        },
        wit::Error::Denied(message) => TaskError::denied(message),
        wit::Error::Unavailable(message) => TaskError::unavailable(message),
        wit::Error::Deadline(message) => TaskError::deadline(message),
        wit::Error::Limit(message) => TaskError::limit(message),
        wit::Error::Cancelled(message) => TaskError::cancelled(message),
        wit::Error::Internal(message) => TaskError::internal(message),
    }
}
