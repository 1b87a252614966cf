// The frame of a chain of steps on every element. `Map` writes the bindings before it and the steps into it.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let i = (group.y * groups.x + group.x) * 256u + thread;
    if (i >= parameters.length) {
        return;
    }
    var x = array_0[i];
    // STEPS
    RESULT[i] = x;
}
