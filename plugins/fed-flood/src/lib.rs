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
use data::Data;
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
        let held = Data::held_of(&setting)?;
        let (both, either, loss) = Way::default().judge(&model, &held);
        Ok(Judged {
            samples: either,
            correct: both,
            loss,
            metrics: Vec::new(),
        })
    }
}

export!(Client);
