//! Fifty shaders that mean harm, one after the other on the same device; after each an honest one has to be right.

use crate::support::Home;
use karman_gpu::{
    Device, Gemm, GpuError, Kernel, Remote, RemoteOptions, Shader, ShaderLimits, Work, f32_words, floats,
};
use std::time::Duration;

/// Whether there is a Vulkan driver; says so where there is none.
pub(super) fn has_vulkan(home: &Home) -> bool {
    let there = home
        .run(["gpu", "list", "--json"])
        .ok()
        .out()
        .contains("\"id\":\"vulkan-0\"");
    if !there {
        eprintln!("skipped: no Vulkan driver here (apt-get install mesa-vulkan-drivers)");
    }
    there
}

/// What is expected of a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// Refused before a driver sees it.
    Refused,
    /// Its loops use up their budget.
    Endless,
    /// It ends by itself, whatever it computes: what it reads or writes beyond its buffers goes nowhere.
    Harmless,
    /// It takes its process with it: the time, or the memory to read it, is used up.
    Fatal,
}

const BINDINGS: &str = "@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> b: array<u32>;\n";

const HEAD: &str = "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>)";

fn shader(body: &str) -> Shader {
    whole(&format!("{BINDINGS}{HEAD} {{ {body} }}"))
}

fn whole(wgsl: &str) -> Shader {
    Shader {
        wgsl: wgsl.into(),
        entry: "main".into(),
        workgroups: [4, 1, 1],
        outputs: vec![256],
        loops: 100_000,
        limits: ShaderLimits::default(),
    }
}

/// Loops without an end.
fn endless() -> Vec<Shader> {
    [
        "loop { b[id.x] += 1u; }",
        "loop { }",
        "while (true) { b[0] = b[1]; }",
        "for (;;) { }",
        "for (var i = 0u; i >= 0u; i++) { b[i % 256u] = i; }",
        "for (var i = 1u; i != 0u; i += 2u) { b[0] = i; }",
        "loop { loop { b[id.x] += 1u; } }",
        "loop { continuing { b[0] += 1u; } }",
        "var x = 1u; loop { if (x == 0u) { break; } x = x * 3u | 1u; b[id.x] = x; }",
        "loop { switch a[0] { case 77u: { break; } default: { continue; } } }",
        "for (var i = 0; i < 2; i--) { b[id.x] = u32(i); if (i < -2000000000) { i = 0; } }",
        "if (id.x == 200u) { loop { b[id.x] ^= 5u; } }",
        "loop { if (b[0] == 12345u) { return; } }",
        "while (a[0] < 10u) { }",
        "for (var i = 0u; i < 4000000000u; i++) { for (var j = 0u; j < 4000000000u; j++) { b[id.x] += j; } }",
    ]
    .map(shader)
    .into_iter()
    .chain([
        whole(&format!("{BINDINGS} fn spin() -> u32 {{ loop {{ }} return 1u; }} {HEAD} {{ b[0] = spin(); }}")),
        whole(&format!(
            "{BINDINGS} fn f() {{ for (;;) {{ b[0] += 1u; }} }} fn g() {{ loop {{ f(); }} }} {HEAD} {{ loop {{ g(); }} }}"
        )),
    ])
    .collect()
}

/// Reads and writes beyond what is bound.
fn beyond() -> Vec<Shader> {
    [
        "b[id.x + 1000000u] = 1u;",
        "b[0] = a[a[0] + 4294967290u];",
        "b[a[0] + 4294967290u] = 1u;",
        "b[id.x] = a[id.x * 1000000007u];",
        "var t: array<u32, 4>; t[id.x] = 7u; b[0] = t[a[1] + 1000u];",
        "var v = vec4<u32>(1u); b[0] = v[id.x + 9u];",
        "for (var i = 0u; i < 5000u; i++) { b[i * 65537u] = i; }",
        "b[arrayLength(&b)] = 1u; b[arrayLength(&a) * 99u] = 2u;",
        "b[0] = a[0] / (a[1] - a[1]); b[1] = a[0] % (a[1] - a[1]);",
        "let x = i32(a[0]); b[0] = u32((-2147483647 - 1) / (x - x - 1));",
        "if (id.x > 3u) { workgroupBarrier(); } b[0] = 1u;",
        "b[id.x] = u32(f32(a[0]) / 0.0 * 1e38); b[1] = 1u << (a[0] % 32u);",
    ]
    .map(shader)
    .into()
}

/// What never reaches a driver.
fn refused() -> Vec<Shader> {
    let honest = format!("{BINDINGS}{HEAD} {{ b[id.x] = 1u; }}");
    let deep = |open: &str, close: &str| format!("{}1u{}", open.repeat(5000), close.repeat(5000));
    let doubling: String = (1..60)
        .map(|n| format!("fn f{n}() -> u32 {{ return f{}() ^ f{}(); }}\n", n - 1, n - 1))
        .collect();
    let texts = [
        String::new(),
        "\u{0}\u{1}\u{2}".into(),
        "}".repeat(100_000),
        format!("{BINDINGS} fn f() {{ f(); }} {HEAD} {{ f(); }}"),
        format!("{BINDINGS} {HEAD} {{ b[0] = {}; }}", deep("(", ")")),
        format!("{BINDINGS} {HEAD} {{ {} }}", "{".repeat(5000) + &"}".repeat(5000)),
        format!("{BINDINGS} fn f0() -> u32 {{ return 1u; }} {doubling} {HEAD} {{ b[0] = f59(); }}"),
        format!("{BINDINGS} var<workgroup> w: array<u32, 100000000>; {HEAD} {{ w[id.x] = 1u; }}"),
        format!("{BINDINGS} var<private> p: array<u32, 1000000>; {HEAD} {{ p[id.x] = 1u; b[0] = p[1]; }}"),
        format!(
            "{BINDINGS} {HEAD} {{ var l: array<array<u32, 10000>, 1000>; l[id.x][1] = 1u; b[0] = l[2][1]; }}"
        ),
        honest.replace("workgroup_size(64)", "workgroup_size(1024, 1024)"),
        honest.replace("workgroup_size(64)", "workgroup_size(0)"),
        honest.replace("binding(0)", "binding(9)"),
        honest.replace("group(0)", "group(3)"),
        format!("@group(0) @binding(2) var t: texture_2d<f32>; {honest}"),
        format!("{BINDINGS} {HEAD} {{ {} }}", "b[0] += 1u;".repeat(30_000)),
        format!("{BINDINGS} {HEAD} {{ b[0] = array<u32, 1000000>()[id.x]; }}"),
        format!(
            "{BINDINGS} fn f() -> u32 {{ return a[0]{}; }} {HEAD} {{ {} }}",
            "+a[0]".repeat(100),
            "b[0] = f();".repeat(1000)
        ),
        format!(
            "{BINDINGS} override n: u32 = 100000000; var<workgroup> w: array<u32, n>; {HEAD} {{ w[id.x] = 1u; }}"
        ),
        format!("{BINDINGS} {HEAD} {{ b[0] = 1u; }} //{}", "x".repeat(4 << 20)),
    ];
    let mut shaders: Vec<Shader> = texts.iter().map(|text| whole(text)).collect();
    let with = |change: fn(&mut Shader)| {
        let mut shader = whole(&honest);
        change(&mut shader);
        shader
    };
    shaders.push(with(|shader| shader.workgroups = [u32::MAX, u32::MAX, u32::MAX]));
    shaders.push(with(|shader| shader.workgroups = [65_535, 65_535, 65_535]));
    shaders.push(with(|shader| shader.outputs = vec![u64::MAX]));
    shaders.push(with(|shader| shader.outputs = vec![1 << 34]));
    shaders.push(with(|shader| shader.outputs = vec![1; 1 << 20]));
    shaders.push(with(|shader| shader.entry = "main".repeat(1 << 20)));
    shaders.push(with(|shader| shader.loops = u32::MAX));
    shaders
}

/// Short texts for which a compiler would take gigabytes.
fn too_large() -> Vec<Shader> {
    let text = |size: u32| format!("{BINDINGS} const bomb = -array<i32, {size}>(); {HEAD} {{ b[0] = 1u; }}");
    vec![whole(&text(400_000_000)), whole(&text(500_000_000))]
}

/// Work that its budget allows and its time does not: the process that holds the device is ended.
pub(super) fn too_long() -> Shader {
    let body = "var x = id.x; for (var i = 0u; i < 16000000u; i++) { x = x * 1664525u + 1013904223u; b[x % 256u] = x; } b[0] = x;";
    Shader {
        workgroups: [4096, 1, 1],
        loops: 1 << 24,
        ..shader(body)
    }
}

#[test]
fn fifty_hostile_shaders_leave_the_device_to_the_others() {
    let home = Home::new();
    if !has_vulkan(&home) {
        return;
    }
    let arguments = vec!["serve-gpu".into(), "vulkan-0".into()];
    let options = RemoteOptions {
        program: env!("CARGO_BIN_EXE_karman").into(),
        arguments,
    };
    let mut device = Remote::start(options).unwrap();
    let mut cases: Vec<(Shader, End)> = Vec::new();
    cases.extend(endless().into_iter().map(|shader| (shader, End::Endless)));
    cases.extend(beyond().into_iter().map(|shader| (shader, End::Harmless)));
    cases.extend(refused().into_iter().map(|shader| (shader, End::Refused)));
    cases.extend(too_large().into_iter().map(|shader| (shader, End::Fatal)));
    cases.push((too_long(), End::Fatal));
    let fatal = cases.iter().filter(|(_, end)| *end == End::Fatal).count();
    assert!(cases.len() >= 50, "{}", cases.len());
    for (number, (shader, end)) in cases.into_iter().enumerate() {
        let within = if end == End::Fatal {
            Duration::from_millis(500)
        } else {
            Duration::from_secs(60)
        };
        let text: String = shader.wgsl.chars().take(200).collect();
        let input = [3u32, 5];
        let ended = device.run(&Work::Shader(shader), &[&input], within);
        let as_expected = matches!(
            (&ended, end),
            (Err(GpuError::Endless(_)), End::Endless)
                | (Ok(_), End::Harmless)
                | (
                    Err(GpuError::Shader(_) | GpuError::Limit { .. } | GpuError::Memory { .. }),
                    End::Refused
                )
                | (Err(GpuError::Lost(_) | GpuError::Deadline(_)), End::Fatal)
        );
        assert!(
            as_expected,
            "case {number} ({end:?}) ended with {:?}: {text}",
            ended.err()
        );
        still_right(&mut device);
    }
    assert_eq!(
        device.started(),
        1 + fatal as u64,
        "only those that ran out of time or memory took their process with them"
    );
}

fn still_right(device: &mut Remote) {
    let product = Kernel::Gemm(Gemm {
        m: 1,
        n: 2,
        k: 2,
        ..Gemm::default()
    });
    let (a, b) = (f32_words(&[1.0, 2.0]), f32_words(&[1.0, 2.0, 3.0, 4.0]));
    let done = device
        .run(&Work::Kernel(product), &[&a, &b], Duration::from_secs(60))
        .unwrap();
    assert_eq!(floats(&done.outputs[0]), [7.0, 10.0]);
}
