//! Writes ONNX files by hand, so that they can be wrong in ways that no exporter is.

pub fn varint(mut n: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

/// A field that holds a number.
pub fn num(field: u64, n: i64) -> Vec<u8> {
    [varint(field << 3), varint(n as u64)].concat()
}

/// A field that holds a message or text.
pub fn sub(field: u64, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    [varint(field << 3 | 2), varint(body.len() as u64), body.to_vec()].concat()
}

pub fn model(graph: &[Vec<u8>]) -> Vec<u8> {
    model_of_set(17, graph)
}

/// A model whose operators are those of this set.
pub fn model_of_set(set: i64, graph: &[Vec<u8>]) -> Vec<u8> {
    [num(1, 8), sub(7, graph.concat()), sub(8, num(2, set))].concat()
}

pub fn node(op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Vec<u8>]) -> Vec<u8> {
    let mut body: Vec<u8> = inputs.iter().flat_map(|name| sub(1, name)).collect();
    body.extend(outputs.iter().flat_map(|name| sub(2, name)));
    body.extend(sub(4, op));
    body.extend(attributes.iter().flat_map(|a| sub(5, a)));
    sub(1, body)
}

/// `field` is 11 for an input and 12 for an output; `code` the element type, 1 for f32.
pub fn value(field: u64, name: &str, code: i64, dims: &[i64]) -> Vec<u8> {
    let shape: Vec<u8> = dims.iter().flat_map(|dim| sub(1, num(1, *dim))).collect();
    let tensor = [num(1, code), sub(2, shape)].concat();
    sub(field, [sub(1, name), sub(2, sub(1, tensor))].concat())
}

/// The same for f32 whose first dimension is the batch, `N`.
pub fn batched(field: u64, name: &str, dims: &[i64]) -> Vec<u8> {
    let mut shape = sub(1, sub(2, "N"));
    shape.extend(dims.iter().flat_map(|dim| sub(1, num(1, *dim))));
    let tensor = [num(1, 1), sub(2, shape)].concat();
    sub(field, [sub(1, name), sub(2, sub(1, tensor))].concat())
}

pub fn tensor(name: &str, code: i64, dims: &[i64], raw: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|dim| num(1, *dim)).collect();
    [dims, num(2, code), sub(8, name), sub(9, raw)].concat()
}

pub fn initializer(name: &str, code: i64, dims: &[i64], raw: &[u8]) -> Vec<u8> {
    sub(5, tensor(name, code, dims, raw))
}

/// Whole numbers as a tensor's data.
pub fn i64s(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// A constant of whole numbers.
pub fn whole(name: &str, values: &[i64]) -> Vec<u8> {
    initializer(name, 7, &[values.len() as i64], &i64s(values))
}

/// A constant of one number.
pub fn number(name: &str, value: f32) -> Vec<u8> {
    initializer(name, 1, &[], &value.to_le_bytes())
}

/// An attribute of whole numbers.
pub fn ints(name: &str, values: &[i64]) -> Vec<u8> {
    let values: Vec<u8> = values.iter().flat_map(|value| num(8, *value)).collect();
    [sub(1, name), values, num(20, 7)].concat()
}

/// An attribute of a whole number.
pub fn int(name: &str, value: i64) -> Vec<u8> {
    [sub(1, name), num(3, value), num(20, 2)].concat()
}

/// An attribute of text.
pub fn text(name: &str, value: &str) -> Vec<u8> {
    [sub(1, name), sub(4, value), num(20, 3)].concat()
}

/// An attribute of a number.
pub fn float(name: &str, value: f32) -> Vec<u8> {
    // A number of 32 bits is of wire type 5.
    let bits = [varint(2 << 3 | 5), value.to_le_bytes().to_vec()].concat();
    [sub(1, name), bits, num(20, 1)].concat()
}

/// `y = Relu(x)`, f32 [2].
pub fn good() -> Vec<u8> {
    model(&[
        node("Relu", &["x"], &["y"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
    ])
}
