//! Clients of one run, of which each does something else wrong. The honest ones draw the model towards 1.

use exports::karman::federated::learner::{
    Array, Description, Error, Fitted, Guest, Judged, Setting, Training,
};

wit_bindgen::generate!({ path: "../../../wit/federated", world: "client", generate_all });

struct Clients;

/// What the client of this share does.
fn part(setting: &Setting) -> &'static str {
    let parts = ["nan", "shape", "weight", "huge", "trap", "forever", "refuses"];
    let index = setting.share.as_ref().map_or(usize::MAX, |share| share.index as usize);
    parts.get(index).copied().unwrap_or("honest")
}

impl Guest for Clients {
    fn describe(_: Setting) -> Result<Description, Error> {
        Ok(Description { samples: 10, label_entropy: None })
    }

    fn begin(_: Setting, _: u64) -> Result<Vec<Array>, Error> {
        Ok(vec![Array { name: "weight".into(), shape: vec![2, 2], values: vec![0.0; 4] }])
    }

    fn fit(
        setting: Setting,
        mut model: Vec<Array>,
        _: Training,
        state: Vec<u8>,
    ) -> Result<Fitted, Error> {
        let mut samples = 10;
        for value in &mut model[0].values {
            *value += 0.5 * (1.0 - *value);
        }
        match part(&setting) {
            "nan" => model[0].values[3] = f32::NAN,
            "shape" => {
                model[0].shape = vec![4, 1];
            }
            "weight" => samples = u64::MAX,
            "huge" => model[0].values[0] = 1e30,
            "trap" => panic!("on purpose"),
            "forever" => loop {
                std::hint::black_box(());
            },
            "refuses" => return Err(Error::Failed("not today".into())),
            _ => {}
        }
        Ok(Fitted {
            model,
            control_change: Vec::new(),
            samples,
            steps: 1,
            loss: 0.5,
            metrics: Vec::new(),
            // Every call counts: what it gives back it gets again.
            state: [state, vec![1]].concat(),
        })
    }

    fn evaluate(_: Setting, model: Vec<Array>) -> Result<Judged, Error> {
        let near = model[0].values.iter().filter(|value| (**value - 1.0).abs() < 0.1).count();
        Ok(Judged { samples: 4, correct: near as u64, loss: 0.1, metrics: Vec::new() })
    }
}

export!(Clients);
