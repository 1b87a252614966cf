//! A client that learns handwritten digits on its own share of them.

mod data;
mod digits;
mod kept;
#[path = "../../learner.rs"]
mod learner;
mod low_rank;
mod net;
mod train;

use data::Train;
use exports::karman::federated::learner::{
    Array, Description, Error, Fitted, Guest, Judged, Setting, Training,
};
use karman::federated::checkpoint;
use kept::Kept;
use learner::{arrays, numbers, property, refused};
use low_rank::LowRank;
use net::Net;
use train::{Begun, Course};

wit_bindgen::generate!({ path: "wit", generate_all });

struct Client;

impl Guest for Client {
    fn describe(setting: Setting) -> Result<Description, Error> {
        let train = Train::of(&setting, Vec::new())?;
        Ok(Description {
            samples: train.samples.len() as u64,
            label_entropy: Some(train.label_entropy()),
        })
    }

    fn begin(setting: Setting, seed: u64) -> Result<Vec<Array>, Error> {
        let net = Net::of(&setting)?;
        Ok(arrays(net.arrays(), &net.initial(seed)))
    }

    fn fit(setting: Setting, model: Vec<Array>, training: Training, state: Vec<u8>) -> Result<Fitted, Error> {
        let net = Net::of(&setting)?;
        let kept =
            Kept::read(&state, net.length()).ok_or_else(|| refused("state", "it is not of this model"))?;
        let Train { samples, places } = Train::of(&setting, kept.places)?;
        let (of_model, of_adapters) = model.split_at(model.len().min(net.arrays().len()));
        let whole = numbers("model", of_model, &net.arrays())?;
        let (low_rank, start) = match LowRank::of(&setting, net, &whole, of_adapters)? {
            Some(_) if training.wants_control => {
                return Err(refused(
                    "wants-control",
                    "adapters are trained without control variates",
                ));
            }
            Some((low_rank, factors)) => (Some(low_rank), factors),
            None => (None, whole.clone()),
        };
        let control = match training.control.is_empty() {
            true => vec![0.0; start.len()],
            false => numbers("control", &training.control, &net.arrays())?,
        };
        let own_control = match kept.control.is_empty() {
            true => vec![0.0; start.len()],
            false => kept.control,
        };
        let course = Course {
            net,
            low_rank,
            samples: &samples,
            training: &training,
            drift: control.iter().zip(&own_control).map(|(c, own)| c - own).collect(),
        };
        let progress = checkpoint::load().and_then(|kept| Begun::read(&kept, start.len()));
        let keep = |begun: &Begun| drop(checkpoint::save(&begun.write()));
        let trained = course.run(&start, progress, keep);
        let mut control_change = Vec::new();
        let mut control_kept = Vec::new();
        if training.wants_control {
            let change = course.control_change(&start, &trained.model, trained.steps, &control);
            let own = own_control.iter().zip(&change);
            control_kept = own.map(|(own, by)| own + by).collect();
        }
        let kept = Kept {
            places,
            control: control_kept,
        };
        Ok(Fitted {
            model: match &course.low_rank {
                Some(low_rank) => low_rank.arrays(&trained.model),
                None => arrays(net.arrays(), &trained.model),
            },
            control_change,
            samples: samples.len() as u64,
            steps: trained.steps,
            loss: trained.loss,
            metrics: Vec::new(),
            state: kept.write(),
        })
    }

    fn evaluate(setting: Setting, model: Vec<Array>) -> Result<Judged, Error> {
        let net = Net::of(&setting)?;
        let held = data::held(&setting)?;
        let (correct, loss) = net.judge(&numbers("model", &model, &net.arrays())?, &held);
        Ok(Judged {
            samples: held.len() as u64,
            correct,
            loss,
            metrics: Vec::new(),
        })
    }
}

export!(Client);
