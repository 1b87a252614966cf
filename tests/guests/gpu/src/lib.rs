//! Gives its body to a kernel of the host (metadata `kernel`, and `on`: `gpu`, `gpu-or-cpu` or `cpu`), or to a shader (metadata
//! `wgsl`, and `outputs` in bytes). The body is one input, or more where the metadata `split` says where the next ones begin. It answers
//! the outputs one after the other; where they were made stands in the metadata.

use exports::karman::task::handler::{Error, Guest, Request, Response};
use karman::gpu::compute::{Place, Shader, run_kernel, run_shader};

wit_bindgen::generate!({
    inline: "
        package local:gpu;

        world gpu {
            include karman:task/task@0.1.0;
            import karman:gpu/compute@0.1.0;
        }
    ",
    path: ["../../../wit/task", "../../../wit/gpu"],
    world: "local:gpu/gpu",
    generate_all,
});

struct Gpu;

impl Guest for Gpu {
    fn handle(request: Request) -> Result<Response, Error> {
        let told = |name: &str| {
            let mut all = request.metadata.iter();
            all.find(|(key, _)| key == name).map(|(_, value)| value.as_str())
        };
        let mut places: Vec<usize> = told("split").unwrap_or_default().split(',').flat_map(str::parse).collect();
        places.insert(0, 0);
        places.push(request.body.len());
        let inputs: Vec<Vec<u8>> = places.windows(2).map(|ends| request.body[ends[0]..ends[1]].to_vec()).collect();
        let outcome = match (told("kernel"), told("wgsl")) {
            (Some(kernel), _) => {
                let place = match told("on") {
                    Some("gpu-or-cpu") => Place::GpuOrCpu,
                    Some("cpu") => Place::Cpu,
                    _ => Place::Gpu,
                };
                run_kernel(kernel, &inputs, place)?
            }
            (None, wgsl) => {
                let shader = Shader {
                    wgsl: wgsl.unwrap_or_default().to_owned(),
                    entry: "main".into(),
                    workgroups: (1, 1, 1),
                    outputs: told("outputs").unwrap_or_default().split(',').flat_map(str::parse).collect(),
                    loops: 10_000,
                };
                run_shader(&shader, &inputs)?
            }
        };
        let fell_back = outcome.fell_back.into_iter().map(|why| ("fell-back".to_owned(), why));
        Ok(Response {
            content_type: "application/octet-stream".into(),
            metadata: [("device".to_owned(), outcome.ran_on)].into_iter().chain(fell_back).collect(),
            body: outcome.outputs.concat(),
        })
    }
}

export!(Gpu);
