//! Rust types generated from `wit/task`, `wit/federated`, `wit/gpu` and `wit/policy`: what the host offers (`host`) and what plugins export (the
//! rest).
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::use_self,
    clippy::or_fun_call,
    reason = "generated code"
)]

pub(crate) mod host {
    wasmtime::component::bindgen!({
        path: ["../../wit/task", "../../wit/gpu"],
        inline: "
            package karman:engine;
            world host {
                import karman:gpu/compute@0.1.0;
                import karman:task/context@0.1.0;
                import karman:task/invoke@0.1.0;
                import wasi:nn/tensor@0.2.0-rc-2024-10-28;
                import wasi:nn/graph@0.2.0-rc-2024-10-28;
                import wasi:nn/inference@0.2.0-rc-2024-10-28;
                import wasi:nn/errors@0.2.0-rc-2024-10-28;
                import wasi:keyvalue/store@0.2.0-draft;
                import wasi:keyvalue/atomics@0.2.0-draft;
                import wasi:keyvalue/batch@0.2.0-draft;
                import wasi:config/store@0.2.0-rc.1;
                import wasi:logging/logging@0.1.0-draft;
            }
        ",
        world: "karman:engine/host",
        imports: { default: async | trappable },
        require_store_data_send: true,
        with: {
            "wasi:nn/tensor.tensor": crate::capability::nn::HeldTensor,
            "wasi:nn/graph.graph": crate::capability::nn::Graph,
            "wasi:nn/inference.graph-execution-context": crate::capability::nn::Graph,
            "wasi:nn/errors.error": crate::capability::nn::NnError,
            "wasi:keyvalue/store.bucket": crate::capability::keyvalue::Bucket,
        },
    });
}

pub(crate) mod task {
    wasmtime::component::bindgen!({
        path: "../../wit/task",
        inline: "
            package karman:engine;
            world task { export karman:task/handler@0.1.0; }
        ",
        world: "karman:engine/task",
        exports: { default: async },
        with: { "karman:task/types": super::host::karman::task::types },
    });
}

pub(crate) mod stream {
    wasmtime::component::bindgen!({
        path: "../../wit/task",
        inline: "
            package karman:engine;
            world task-stream { export karman:task/stream-handler@0.1.0; }
        ",
        world: "karman:engine/task-stream",
        exports: { default: async | store },
        with: { "karman:task/types": super::host::karman::task::types },
    });
}

pub(crate) mod lifecycle {
    wasmtime::component::bindgen!({
        path: "../../wit/task",
        inline: "
            package karman:engine;
            world lifecycle { export karman:task/lifecycle@0.1.0; }
        ",
        world: "karman:engine/lifecycle",
        exports: { default: async },
    });
}

pub(crate) mod federated {
    wasmtime::component::bindgen!({
        path: "../../wit/federated",
        world: "karman:federated/client",
        imports: { default: async | trappable },
        exports: { default: async },
        require_store_data_send: true,
        with: {
            "karman:task/types": super::host::karman::task::types,
            "karman:task/context": super::host::karman::task::context,
        },
    });
}

pub(crate) mod strategy {
    wasmtime::component::bindgen!({
        path: "../../wit/federated",
        world: "karman:federated/strategy",
        with: { "karman:federated/types": super::federated::karman::federated::types },
    });
}

pub(crate) mod policy {
    wasmtime::component::bindgen!({
        path: "../../wit/policy",
        world: "karman:policy/select",
    });
}

pub(crate) mod route {
    wasmtime::component::bindgen!({
        path: "../../wit/policy",
        world: "karman:policy/route",
    });
}

pub(crate) mod place {
    wasmtime::component::bindgen!({
        path: "../../wit/policy",
        world: "karman:policy/place",
    });
}
