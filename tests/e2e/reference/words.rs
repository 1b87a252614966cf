//! What types are called on the page.

use super::source::choices;

/// The word for a type that a file of the sources names. What has a table of its own never comes here.
pub(super) fn of(file: &str, name: &str) -> String {
    let word = match name {
        "String" | "DataType" | "FieldPath" | "GpuChoice" | "NodeSelector" | "Version" | "World" => "text",
        "PathBuf" => "path",
        "bool" => "true or false",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" | "NonZeroU16" | "NonZeroUsize" => "whole number",
        "f32" | "f64" => "number",
        "ByteSize" => "size",
        "Time" if file.starts_with("host/space/") => "moment",
        "Duration" | "Time" => "duration",
        // A chance to be drawn there, the speed of a link elsewhere.
        "Rate" if file.starts_with("host/fed/") => "number",
        "Rate" => "rate",
        "SocketAddr" => "address",
        "Multiaddr" => "multiaddr",
        "PublicKey" => "public key",
        "Network" => "network",
        "NodeId" => "node",
        "Grant" => "grant",
        "HostName" => "host name",
        "EndpointUrl" => "URL",
        "Right" => "right",
        "Scalar" | "Setting" => "value",
        "Predicate" => "`[edge.when]`",
        "DataContract" => "list of tables as `[[task.inputs]]` of `karman.toml`",
        "Limits" => "table as `[limits]` of `karman.toml`",
        "Slo" => "table as `[slo]` of a workflow",
        "Link" => "tables, as a link profile's `[[link]]`",
        "Tier" => return choices("host/types/src/task.rs", name),
        "Language" => return choices("host/types/src/manifest.rs", name),
        "ModelDevice" => return choices("host/node/src/config/gpu.rs", name),
        "BackendChoice" => return choices("host/node/src/config.rs", name),
        "Route" if file.starts_with("host/node/") => return choices("host/sched/src/call/route.rs", name),
        "Route" | "ServePolicy" => return choices("host/sim/src/scenario/describe.rs", name),
        "Shape" => return choices("host/sim/src/shape.rs", name),
        "WeightPolicy" => return choices("host/fed/src/strategy/weights.rs", name),
        "EncodingPolicy" => return choices("host/fed/src/description/parts.rs", name),
        "LowRankRule" => return choices("host/fed/src/description/low_rank.rs", name),
        "Encoding" => return choices("host/tensor/src/encode/mod.rs", name),
        "Graph" | "Degree" => return choices("host/fed/src/secure/graph.rs", name),
        _ => panic!("{file} has a key of the type `{name}`: give it a word here, or a table in files.rs"),
    };
    word.to_owned()
}
