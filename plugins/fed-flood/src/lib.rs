//! A client that learns to see water from what a board knows of its valley.

#[path = "../../adam.rs"]
mod adam;
mod data;
#[path = "../../learner.rs"]
mod learner;
mod net;
mod train;
#[path = "../../vectors.rs"]
mod vectors;

use adam::Begun;
use data::{Data, Sample};
use exports::karman::federated::learner::{
    Array, Description, Error, Fitted, Guest, Judged, Setting, Training,
};
use karman::federated::checkpoint;
use learner::{arrays, numbers, property, refused};
use net::Way;
use train::Course;

wit_bindgen::generate!({ path: "wit", generate_all });

struct Client;

impl Guest for Client {
    fn describe(setting: Setting) -> Result<Description, Error> {
        Ok(Description {
            samples: Data::of(&setting)?.train.len() as u64,
            label_entropy: None,
        })
    }

    fn begin(_: Setting, _: u64) -> Result<Vec<Array>, Error> {
        Err(refused(
            "model",
            "it betters a model that there is: name one in the description, as `model = \"flood-s\"`",
        ))
    }

    fn fit(setting: Setting, model: Vec<Array>, training: Training, _: Vec<u8>) -> Result<Fitted, Error> {
        if training.wants_control {
            return Err(refused("control", "this client has no control variates"));
        }
        let start = numbers("model", &model, &net::arrays())?;
        let data = Data::of(&setting)?;
        if data.train.is_empty() {
            // Whoever answers no step has done something wrong in the eyes of its driver.
            return Err(nothing("train on"));
        }
        let course = Course {
            samples: &data.train,
            training: &training,
        };
        let progress = checkpoint::load().and_then(|kept| Begun::read(&kept, net::LENGTH));
        let keep = |begun: &Begun| drop(checkpoint::save(&begun.write()));
        let trained = course.run(&start, progress, keep);
        Ok(Fitted {
            model: arrays(net::arrays(), &trained.model),
            control_change: Vec::new(),
            samples: data.train.len() as u64,
            steps: trained.steps,
            loss: trained.loss(),
            metrics: Vec::new(),
            state: Vec::new(),
        })
    }

    fn evaluate(setting: Setting, model: Vec<Array>) -> Result<Judged, Error> {
        let model = numbers("model", &model, &net::arrays())?;
        judged(&model, &Data::held_of(&setting)?)
    }
}

fn judged(model: &[f32], held: &[Sample]) -> Result<Judged, Error> {
    if held.is_empty() {
        return Err(nothing("judge by"));
    }
    let (both, either, loss) = Way::default().judge(model, held);
    // Where there is no water and the model sees none, that is one thing that it gets right.
    let (correct, samples) = match either {
        0 => (1, 1),
        _ => (both, either),
    };
    Ok(Judged {
        samples,
        correct,
        loss,
        metrics: Vec::new(),
    })
}

fn nothing(to: &str) -> Error {
    Error::Failed(format!(
        "clouds leave nothing to {to} in the pictures of this client, or there is no water in them"
    ))
}

export!(Client);

#[cfg(test)]
mod tests {
    use super::*;
    use data::{AREA, BANDS};

    /// A model that sees water everywhere, or nowhere: its last number is added to every score.
    fn seeing(water: bool) -> Vec<f32> {
        let mut model = vec![0.0; net::LENGTH];
        model[net::LENGTH - 1] = if water { 5.0 } else { -5.0 };
        model
    }

    fn tile(wet: usize) -> Sample {
        Sample {
            image: vec![0.5; BANDS * AREA],
            water: (0..AREA).map(|at| at < wet).collect(),
        }
    }

    fn counts(water: bool, held: &[Sample]) -> (u64, u64) {
        let judged = judged(&seeing(water), held).unwrap();
        assert!(judged.loss.is_finite());
        (judged.correct, judged.samples)
    }

    #[test]
    fn no_water_that_is_not_seen_is_right_and_no_picture_is_no_answer() {
        assert_eq!(counts(false, &[tile(0)]), (1, 1));
        assert_eq!(counts(true, &[tile(0)]), (0, AREA as u64));
        assert_eq!(counts(true, &[tile(7)]), (7, AREA as u64));
        assert_eq!(counts(false, &[tile(7)]), (0, 7));
        assert!(matches!(judged(&seeing(true), &[]), Err(Error::Failed(_))));
    }
}
