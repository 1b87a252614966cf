//! The headers in which a response says who ran what, and why. gRPC has them as metadata.

use http::HeaderName;

/// The model or task.
pub(crate) const MODEL: HeaderName = HeaderName::from_static("karman-model");
/// The node.
pub(crate) const NODE: HeaderName = HeaderName::from_static("karman-node");
/// Its tier.
pub(crate) const TIER: HeaderName = HeaderName::from_static("karman-tier");
/// The back-end, and what that runs on.
pub(crate) const RAN_ON: HeaderName = HeaderName::from_static("karman-ran-on");
/// Which part ran where.
pub(crate) const CUT: HeaderName = HeaderName::from_static("karman-cut");
/// How many requests it ran at once.
pub(crate) const BATCH: HeaderName = HeaderName::from_static("karman-batch");
/// The early exit that answered.
pub(crate) const EXIT: HeaderName = HeaderName::from_static("karman-exit");
/// Why there.
pub(crate) const WHY: HeaderName = HeaderName::from_static("karman-why");
/// Under which name `karman why` tells more.
pub(crate) const DECISION: HeaderName = HeaderName::from_static("karman-decision");
