//! A model of one `MatMul` with constant weights, written by hand: the format is protocol buffers.

/// `c = a b`: `a` is an input of `m` by `k`, `b` a constant of `k` by `n`.
pub(crate) fn matmul(m: usize, n: usize, k: usize, b: &[f32]) -> Vec<u8> {
    let mut node = Vec::new();
    text(&mut node, 1, "a");
    text(&mut node, 1, "b");
    text(&mut node, 2, "c");
    text(&mut node, 4, "MatMul");
    let mut weights = Vec::new();
    number(&mut weights, 1, k as u64);
    number(&mut weights, 1, n as u64);
    number(&mut weights, 2, FLOAT);
    text(&mut weights, 8, "b");
    let raw: Vec<u8> = b.iter().flat_map(|value| value.to_le_bytes()).collect();
    bytes(&mut weights, 9, &raw);
    let mut graph = Vec::new();
    bytes(&mut graph, 1, &node);
    text(&mut graph, 2, "product");
    bytes(&mut graph, 5, &weights);
    bytes(&mut graph, 11, &value("a", [m, k]));
    bytes(&mut graph, 12, &value("c", [m, n]));
    let mut opset = Vec::new();
    number(&mut opset, 2, 17);
    let mut model = Vec::new();
    number(&mut model, 1, 8);
    bytes(&mut model, 7, &graph);
    bytes(&mut model, 8, &opset);
    model
}

/// `TensorProto.DataType.FLOAT`.
const FLOAT: u64 = 1;

fn value(name: &str, dims: [usize; 2]) -> Vec<u8> {
    let mut shape = Vec::new();
    for dim in dims {
        let mut one = Vec::new();
        number(&mut one, 1, dim as u64);
        bytes(&mut shape, 1, &one);
    }
    let mut tensor = Vec::new();
    number(&mut tensor, 1, FLOAT);
    bytes(&mut tensor, 2, &shape);
    let mut kind = Vec::new();
    bytes(&mut kind, 1, &tensor);
    let mut value = Vec::new();
    text(&mut value, 1, name);
    bytes(&mut value, 2, &kind);
    value
}

fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn number(to: &mut Vec<u8>, field: u64, value: u64) {
    varint(to, field << 3);
    varint(to, value);
}

fn bytes(to: &mut Vec<u8>, field: u64, body: &[u8]) {
    varint(to, field << 3 | 2);
    varint(to, body.len() as u64);
    to.extend_from_slice(body);
}

fn text(to: &mut Vec<u8>, field: u64, body: &str) {
    bytes(to, field, body.as_bytes());
}
