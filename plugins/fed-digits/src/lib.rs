//! A client that learns handwritten digits on its own share of them.

mod data;
mod digits;
mod kept;
mod net;
mod train;

use data::Train;
use exports::karman::federated::learner::{
    Array, Description, Error, Fitted, Guest, Judged, Setting, Training,
};
use karman::federated::checkpoint;
use karman::task::types::InvalidInput;
use kept::Kept;
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
        Ok(arrays(net, &net.initial(seed)))
    }

    fn fit(setting: Setting, model: Vec<Array>, training: Training, state: Vec<u8>) -> Result<Fitted, Error> {
        let net = Net::of(&setting)?;
        let kept =
            Kept::read(&state, net.length()).ok_or_else(|| refused("state", "it is not of this model"))?;
        let Train { samples, places } = Train::of(&setting, kept.places)?;
        let start = numbers(net, "model", &model)?;
        let control = match training.control.is_empty() {
            true => vec![0.0; net.length()],
            false => numbers(net, "control", &training.control)?,
        };
        let own_control = match kept.control.is_empty() {
            true => vec![0.0; net.length()],
            false => kept.control,
        };
        let course = Course {
            net,
            samples: &samples,
            training: &training,
            drift: control.iter().zip(&own_control).map(|(c, own)| c - own).collect(),
        };
        let progress = checkpoint::load().and_then(|kept| Begun::read(&kept, net.length()));
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
            model: arrays(net, &trained.model),
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
        let (correct, loss) = net.judge(&numbers(net, "model", &model)?, &held);
        Ok(Judged {
            samples: held.len() as u64,
            correct,
            loss,
            metrics: Vec::new(),
        })
    }
}

/// What a setting says of this name.
fn property<'a>(setting: &'a Setting, name: &str) -> Option<&'a str> {
    let found = setting.properties.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

fn refused(field: &str, why: &str) -> Error {
    Error::Invalid(InvalidInput {
        message: format!("`{field}`: {why}"),
        field: Some(field.into()),
    })
}

/// The numbers of all arrays in one row.
fn numbers(net: Net, field: &str, arrays: &[Array]) -> Result<Vec<f32>, Error> {
    let wanted = net.arrays();
    let fits = |array: &Array, (name, shape): &(&str, Vec<u32>)| array.name == *name && array.shape == *shape;
    if arrays.len() != wanted.len() || !arrays.iter().zip(&wanted).all(|(one, other)| fits(one, other)) {
        let names: Vec<String> = wanted
            .iter()
            .map(|(name, shape)| format!("{name} {shape:?}"))
            .collect();
        return Err(refused(
            field,
            &format!("its arrays are not {}", names.join(", ")),
        ));
    }
    let numbers: Vec<f32> = arrays
        .iter()
        .flat_map(|array| array.values.iter().copied())
        .collect();
    match numbers.len() == net.length() {
        true => Ok(numbers),
        false => Err(refused(
            field,
            "an array has not as many numbers as its shape says",
        )),
    }
}

fn arrays(net: Net, numbers: &[f32]) -> Vec<Array> {
    let mut rest = numbers;
    let named = net.arrays().into_iter().map(|(name, shape)| {
        let (values, more) = rest.split_at(shape.iter().product::<u32>() as usize);
        rest = more;
        Array {
            name: name.into(),
            shape,
            values: values.to_vec(),
        }
    });
    named.collect()
}

export!(Client);
