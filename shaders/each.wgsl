// A thread per element. What is done with one is said by the shader before this one, which brings `elements()` and `each(i)`.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = (group.y * groups.x + group.x) * 256u + thread;
    if (i < elements()) {
        each(i);
    }
}
