use super::*;
use crate::device::{Cpu, Device};

fn device() -> DeviceInfo {
    DeviceInfo {
        most_threads: 256,
        most_buffers: 8,
        ..Cpu::new(1).info().clone()
    }
}

fn shader(wgsl: &str) -> Shader {
    Shader {
        wgsl: wgsl.into(),
        entry: "main".into(),
        workgroups: [1, 1, 1],
        outputs: vec![4],
        loops: 1000,
        limits: ShaderLimits::default(),
    }
}

fn refusal(shader: &Shader) -> String {
    shader
        .check(&[&[1, 2]], &device())
        .err()
        .expect("refused")
        .to_string()
}

const BINDINGS: &str = "@group(0) @binding(0) var<storage, read> a: array<u32>;
    @group(0) @binding(1) var<storage, read_write> b: array<u32>;\n";

#[test]
fn an_honest_shader_gets_its_budget() {
    let text = format!(
        "{BINDINGS} @compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {{
            for (var n = 0u; n < a[0]; n++) {{ b[i] += a[1]; }}
        }}"
    );
    let checked = shader(&text).check(&[&[1, 2]], &device()).unwrap();
    assert_eq!(
        (checked.arguments.len(), checked.writable),
        (3, vec![false, true, true])
    );
    assert_eq!(checked.module.global_variables.len(), 4);
}

#[test]
fn what_is_not_allowed_is_named() {
    let with = |body: &str| shader(&format!("{BINDINGS} {body}"));
    let main = "@compute @workgroup_size(4) fn main() { b[0] = 1u; }";
    assert!(refusal(&shader("not wgsl")).contains("line 1"));
    assert!(refusal(&with("@compute @workgroup_size(512) fn main() { b[0] = 1u; }")).contains("512 threads"));
    assert!(refusal(&with("@compute @workgroup_size(4) fn other() { b[0] = 1u; }")).contains("`main`"));
    assert!(refusal(&with(&format!("var<workgroup> w: array<u32, 65536>; {main}"))).contains("256 KiB"));
    assert!(
        refusal(&with(&format!(
            "@group(1) @binding(0) var<storage> x: u32; {main}"
        )))
        .contains("`x`")
    );
    assert!(
        refusal(&with(&format!(
            "@group(0) @binding(2) var<uniform> u: u32; {main}"
        )))
        .contains("`u`")
    );
    let written = BINDINGS.replace("read>", "read_write>");
    assert!(refusal(&shader(&format!("{written} {main}"))).contains("`a` is an input"));
    let mut huge = with(main);
    huge.workgroups = [65_535, 65_535, 1];
    assert!(refusal(&huge).contains("invocations"));
    let mut greedy = with(main);
    greedy.outputs = vec![1 << 40];
    assert!(refusal(&greedy).contains("its buffers together"));
    greedy.outputs = vec![4, 0];
    assert!(refusal(&greedy).contains("no words"));
    let deep = format!("{}1u{}", "(".repeat(300), ")".repeat(300));
    assert!(refusal(&with(&format!("fn f() -> u32 {{ return {deep}; }} {main}"))).contains("nested"));
}

#[test]
fn functions_that_double_are_refused() {
    let mut text = String::from(BINDINGS);
    text.push_str("fn f0() -> u32 { return 1u; }\n");
    for n in 1..40 {
        text.push_str(&format!(
            "fn f{n}() -> u32 {{ return f{}() + f{}(); }}\n",
            n - 1,
            n - 1
        ));
    }
    text.push_str("@compute @workgroup_size(1) fn main() { b[0] = f39(); }");
    assert!(refusal(&shader(&text)).contains("steps"));
}

#[test]
fn values_count_by_their_size() {
    let main = "@compute @workgroup_size(1) fn main(@builtin(local_invocation_index) i: u32)";
    let with = |body: &str| shader(&format!("{BINDINGS} {main} {{ {body} }}"));
    assert!(refusal(&with("b[0] = array<u32, 1000000>()[i];")).contains("steps"));
    let (sum, calls) = ("+a[0]".repeat(100), "b[0] = f();".repeat(500));
    let often = format!("{BINDINGS} fn f() -> u32 {{ return 1u{sum}; }} {main} {{ {calls} }}");
    assert!(refusal(&shader(&often)).contains("steps"));
    assert!(
        with("let t = array<u32, 64>(); b[0] = t[i];")
            .check(&[&[1, 2]], &device())
            .is_ok()
    );
}

#[test]
fn what_has_no_size_yet_is_refused() {
    let text = format!(
        "{BINDINGS} override n: u32 = 100000000; var<workgroup> w: array<u32, n>;
        @compute @workgroup_size(1) fn main() {{ w[0] = 1u; b[0] = w[1]; }}"
    );
    assert!(refusal(&shader(&text)).contains("overrides"));
}

#[test]
fn what_is_said_of_a_shader_is_short() {
    let mut long = shader(&format!("fn {}() {{ }} {}", "f".repeat(60_000), "}"));
    assert!(refusal(&long).len() < 1000);
    long.entry = "main".repeat(1000);
    assert!(refusal(&long).contains("4000 bytes of an entry point's name"));
}

#[test]
fn what_compilers_would_sink_into_is_refused() {
    let main = "@compute @workgroup_size(1) fn main(@builtin(local_invocation_index) i: u32)";
    let with = |body: &str| shader(&format!("{BINDINGS} {main} {{ {body} }}"));
    let chain = |terms: usize| format!("b[0] = 1u{};", "+i".repeat(terms));
    let hidden = format!("// see\r b[0] = 1u{};", "+i".repeat(10_000));
    let minus = format!("b[0] = u32({}1);", "- ".repeat(10_000));
    let otherwise = |blank: &str| {
        let others = format!("{blank}else if (i == 2u) {{ }}").repeat(2000);
        format!("if (i == 1u) {{ b[0] = 1u; }}{others}")
    };
    for deep in [
        chain(10_000),
        hidden,
        minus,
        otherwise(""),
        otherwise("/**/"),
        otherwise("\u{85}"),
        // What looks like a comment within one is none.
        format!("// \u{e9} /*\n {}", chain(10_000)),
        format!("/* /* */ // */ {}", chain(10_000)),
    ] {
        let begins: String = deep.chars().take(40).collect();
        assert!(refusal(&with(&deep)).contains("nested deeper"), "{begins}");
    }
    let comment = format!(
        "// {}\n/* {} /* */ {} */",
        "-".repeat(500),
        "(+".repeat(500),
        "(".repeat(500)
    );
    let sums = chain(100).repeat(20);
    for honest in [
        chain(100),
        comment,
        sums,
        "var x = vec4<f32>(-0.5, 1.5, -2.5, 3.5);"
            .repeat(50)
            .replace("var x", "_"),
    ] {
        with(&format!("{honest} b[0] = 1u;"))
            .check(&[&[1, 2]], &device())
            .unwrap();
    }
}
