// Rows of tables by their numbers, a thread per element of the result.

struct Parameters {
    tables: u32,
    rows: u32,
    width: u32,
    numbers: u32,
}

@group(0) @binding(0) var<uniform> parameters: Parameters;
@group(0) @binding(1) var<storage, read> table: array<f32>;
@group(0) @binding(2) var<storage, read> numbers: array<i32>;
@group(0) @binding(3) var<storage, read_write> result: array<f32>;

fn elements() -> u32 { return parameters.tables * parameters.numbers * parameters.width; }

fn each(i: u32) {
    let column = i % parameters.width;
    let place = i / parameters.width;
    var number = numbers[place % parameters.numbers];
    let rows = i32(parameters.rows);
    if (number < 0) {
        number += rows;
    }
    let row = u32(clamp(number, 0, rows - 1));
    let of_table = place / parameters.numbers * parameters.rows;
    result[i] = table[(of_table + row) * parameters.width + column];
}
