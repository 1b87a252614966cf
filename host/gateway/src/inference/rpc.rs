//! The methods of `inference.GRPCInferenceService` that are there.

use crate::refusal::Refusal;
use crate::span;
use crate::target::GRPC_SERVICE;
use karman_types::TaskError;

/// A method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rpc {
    ServerLive,
    ServerReady,
    ServerMetadata,
    ModelReady,
    ModelMetadata,
    RepositoryIndex,
    ModelInfer,
}

impl Rpc {
    /// The method at this path.
    ///
    /// # Errors
    /// `invalid`, over gRPC `UNIMPLEMENTED`, where there is none.
    pub(super) fn at(path: &str) -> Result<Self, Refusal> {
        match path.strip_prefix(GRPC_SERVICE).unwrap_or_default() {
            "ServerLive" => Ok(Self::ServerLive),
            "ServerReady" => Ok(Self::ServerReady),
            "ServerMetadata" => Ok(Self::ServerMetadata),
            "ModelReady" => Ok(Self::ModelReady),
            "ModelMetadata" => Ok(Self::ModelMetadata),
            "RepositoryIndex" => Ok(Self::RepositoryIndex),
            "ModelInfer" => Ok(Self::ModelInfer),
            "ModelStreamInfer" => Err(no_method(
                "`ModelStreamInfer` is not there: use `ModelInfer`".to_owned(),
            )),
            other => Err(no_method(format!("there is no method `{}`", span::cut(other)))),
        }
    }
}

/// What is said where a path names no method of a service.
pub(crate) fn no_method(message: String) -> Refusal {
    Refusal::unimplemented(TaskError::invalid(message).with_field("path"))
}

/// Refuses a path that names no method.
///
/// # Errors
/// As those of [`Rpc::at`].
pub(crate) fn must_be_method(path: &str) -> Result<(), Refusal> {
    Rpc::at(path).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn what_is_no_method_is_unimplemented_and_a_stream_has_another_name() {
        let at = |method: &str| Rpc::at(&format!("{GRPC_SERVICE}{method}"));
        assert_eq!(at("ModelInfer"), Ok(Rpc::ModelInfer));
        for (method, says) in [
            ("ModelStreamInfer", "use `ModelInfer`"),
            ("Other/ModelInfer", "`Other/ModelInfer`"),
            ("", "no method"),
        ] {
            let status = at(method).unwrap_err().into_grpc();
            assert_eq!(status.code(), Code::Unimplemented, "{method}");
            assert!(status.message().contains(says), "{status}");
        }
    }
}
