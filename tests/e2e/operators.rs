//! Operators in the SIMD of Wasm, as a node runs them: what is kept stays, and gives what the definition gives.

use crate::support::{Answer, Home, Server, guest};

/// Whole numbers so small that sums of their products are exact in any order.
fn some(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 37 + 11) % 13) as f32 - 6.0).collect()
}

fn post(server: &Server, header: (&str, &str), numbers: &[f32]) -> Answer {
    let body: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    server.post("/tasks/operators", &[header], &body)
}

fn keep(server: &Server, described: &str, weights: &[f32]) -> String {
    let answer = post(server, ("karman-meta-operator", described), weights);
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.text()
}

fn run(server: &Server, number: &str, input: &[f32]) -> Vec<f32> {
    let answer = post(server, ("content-type", number), input);
    assert_eq!(answer.status, 200, "{answer:?}");
    let (numbers, rest) = answer.body.as_chunks::<4>();
    assert!(rest.is_empty(), "{answer:?}");
    numbers.iter().map(|number| f32::from_le_bytes(*number)).collect()
}

#[test]
fn operators_in_wasm_give_what_the_definition_gives() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("operators").to_str().unwrap()]).ok();

    let (rows, inner, columns) = (7, 11, 13);
    let (left, weights) = (some(rows * inner), some(inner * columns));
    let mut expected = Vec::new();
    for row in 0..rows {
        for column in 0..columns {
            let products = (0..inner).map(|at| left[row * inner + at] * weights[at * columns + column]);
            expected.push(products.sum::<f32>());
        }
    }
    let product = keep(&server, "matmul 11 13", &weights);
    let blur = keep(&server, "conv 1 1 3 3 1 1", &[1.0; 9]);
    let relu = keep(&server, "relu", &[]);
    let add = keep(&server, "add", &[]);
    assert_eq!(run(&server, &product, &left), expected);
    assert_eq!(
        run(&server, &blur, &[1.0; 9]),
        [4.0, 6.0, 4.0, 6.0, 9.0, 6.0, 4.0, 6.0, 4.0]
    );
    assert_eq!(
        run(&server, &relu, &[-1.0, 2.0, -3.0, 0.0, 5.0]),
        [0.0, 2.0, 0.0, 0.0, 5.0]
    );
    assert_eq!(run(&server, &add, &[1.0, 2.0, 30.0, 40.0]), [31.0, 42.0]);
    // Another product with what was kept before.
    assert_eq!(
        run(&server, &product, &left[..inner]).as_slice(),
        &expected[..columns]
    );

    for (header, numbers, said) in [
        (
            ("content-type", "9"),
            1,
            "`9` is not the number of a kept operator",
        ),
        (("content-type", "0"), 10, "10 numbers are not rows of 11"),
        (
            ("karman-meta-operator", "matmul 3 4"),
            11,
            "11 numbers instead of 12",
        ),
    ] {
        let answer = post(&server, header, &some(numbers));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.text().contains(said), "{answer:?}");
    }
}
