//! One board's share of one layer: shape, parameters and input in, rows of 8-bit values out.
//!
//! The arithmetic is that of `karman-tensor`, in plain Rust and whole numbers, so that a board that interprets Wasm gives the
//! same bits as one that runs native code.

use exports::karman::task::handler::{Error, Guest, Request, Response};
use karman::task::types::InvalidInput;
use karman_tensor::split::ShareTask;

wit_bindgen::generate!({ path: "wit", generate_all });

struct SplitWorker;

impl Guest for SplitWorker {
    fn handle(request: Request) -> Result<Response, Error> {
        let body = compute(&request.body).map_err(|message| {
            let field = Some("share".into());
            Error::Invalid(InvalidInput { message, field })
        })?;
        Ok(Response {
            content_type: "application/octet-stream".into(),
            metadata: Vec::new(),
            body,
        })
    }
}

/// The rows that a share asks for. The error says what is wrong with it.
fn compute(share: &[u8]) -> Result<Vec<u8>, String> {
    let share: ShareTask = cbor4ii::serde::from_slice(share)
        .map_err(|error| format!("the body is not a share of a layer: {error}"))?;
    let rows = share.run().map_err(|error| error.to_string())?;
    Ok(rows.into_iter().map(|value| value as u8).collect())
}

export!(SplitWorker);

#[cfg(test)]
mod tests {
    use super::*;
    use karman_tensor::quantised::{Layer, Network, mobilenet_v2};

    /// The first block of MobileNetV2: a convolution, a depthwise one, a pointwise one.
    fn network() -> Network {
        let layers: Vec<Layer> = mobilenet_v2(32, 10).unwrap().into_iter().take(3).collect();
        let mut random = 7u32;
        let next = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            random
        };
        Network::generated(layers, next).unwrap()
    }

    /// Splits each layer in two bands and asks for them one after the other, as boards would be asked.
    #[test]
    fn two_boards_compute_what_one_does() {
        let network = network();
        let input: Vec<i8> = (0..network.input().elements())
            .map(|at| (at * 37) as i8)
            .collect();
        let whole = network.run(&input).unwrap();
        let mut values = input;
        for (index, layer) in network.layers().iter().enumerate() {
            let (extent, row) = (layer.output(), layer.input().width * layer.input().channels);
            let middle = extent.height / 2;
            let mut rows = Vec::new();
            for band in [0..middle, middle..extent.height] {
                let mut part = extent.whole();
                part.rows = band;
                let needed = layer.needs(&part).rows;
                let given = values[needed.start * row..needed.end * row].to_vec();
                let share = ShareTask::new(&network, index, &part, given, Vec::new()).unwrap();
                let message = cbor4ii::serde::to_vec(Vec::new(), &share).unwrap();
                rows.extend(compute(&message).unwrap().into_iter().map(|byte| byte as i8));
            }
            values = rows;
        }
        assert_eq!(values, whole);
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for body in [
            &b""[..],
            b"PNG",
            &[0xff; 64],
            &[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        ] {
            let error = compute(body).unwrap_err();
            assert!(error.starts_with("the body is not a share of a layer"), "{error}");
        }
        let network = network();
        let part = network.activation(1).whole();
        let share = ShareTask::new(&network, 0, &part, vec![0; 5], Vec::new()).unwrap();
        let message = cbor4ii::serde::to_vec(Vec::new(), &share).unwrap();
        assert_eq!(
            compute(&message).unwrap_err(),
            "input has 5 values instead of 3072"
        );
    }
}
