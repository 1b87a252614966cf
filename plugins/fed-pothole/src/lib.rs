//! A client that learns to tell potholes, manholes and bumps apart in the vibration of its vehicle.

mod data;
#[path = "../../learner.rs"]
mod learner;

use data::Wanted;
use exports::karman::federated::learner::{
    Array, Description, Error, Fitted, Guest, Judged, Setting, Training,
};
use karman::federated::checkpoint;
use learner::{arrays, numbers, property, refused};
use pothole_learn::fleet::Drive;
use pothole_learn::road::Kind;
use pothole_learn::{Begun, How, Unet};

wit_bindgen::generate!({ path: "wit", generate_all });

struct Client;

impl Guest for Client {
    fn describe(setting: Setting) -> Result<Description, Error> {
        Ok(Description {
            samples: Wanted::of(&setting)?.windows as u64,
            label_entropy: None,
        })
    }

    fn begin(_: Setting, seed: u64) -> Result<Vec<Array>, Error> {
        let unet = Unet::new();
        Ok(arrays(unet.arrays().to_vec(), &unet.initial(seed)))
    }

    fn fit(setting: Setting, model: Vec<Array>, training: Training, _: Vec<u8>) -> Result<Fitted, Error> {
        if training.wants_control {
            return Err(refused("control", "this client has no control variates"));
        }
        let unet = Unet::new();
        let start = numbers("model", &model, unet.arrays())?;
        let windows = Wanted::of(&setting)?.taken(Drive::Train);
        let how = How {
            epochs: training.epochs,
            batch: training.batch,
            rate: training.learning_rate,
            most_steps: training.most_steps,
            proximal: training.proximal,
            seed: training.seed,
        };
        let progress = checkpoint::load().and_then(|kept| Begun::read(&kept, unet.length()));
        let keep = |begun: &Begun| drop(checkpoint::save(&begun.write()));
        let trained = how.teach(&unet, &windows, &start, progress, keep);
        Ok(Fitted {
            model: arrays(unet.arrays().to_vec(), &trained.model),
            control_change: Vec::new(),
            samples: windows.len() as u64,
            steps: trained.steps,
            loss: trained.loss(),
            metrics: Vec::new(),
            state: Vec::new(),
        })
    }

    fn evaluate(setting: Setting, model: Vec<Array>) -> Result<Judged, Error> {
        let unet = Unet::new();
        let model = numbers("model", &model, unet.arrays())?;
        let judged = unet.judge(&model, &Wanted::of(&setting)?.taken(Drive::Held));
        // Where nothing lies on the road and the model says so, that is one thing that it gets right.
        let (correct, samples) = match judged.things().halves() {
            (_, 0) => (1, 1),
            halves => halves,
        };
        let of_kind = |kind: Kind| {
            let of = |what: &str| format!("{what}_f1.{}", kind.name());
            let (samples, events) = (judged.samples[kind.index()], judged.events[kind.index()]);
            [(of("sample"), samples.f1()), (of("event"), events.f1())]
        };
        Ok(Judged {
            samples,
            correct,
            loss: judged.loss() as f32,
            metrics: Kind::ALL.into_iter().skip(1).flat_map(of_kind).collect(),
        })
    }
}

export!(Client);
