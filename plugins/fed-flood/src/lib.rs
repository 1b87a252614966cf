//! A client that learns to see water from what a board knows of its valley.

mod data;
mod net;
mod train;

use data::Data;
use exports::karman::federated::learner::{
    Array, Description, Error, Fitted, Guest, Judged, Setting, Training,
};
use karman::federated::checkpoint;
use karman::task::types::InvalidInput;
use net::{LENGTH, Way};
use train::{Begun, Course};

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
        let start = numbers(&model)?;
        let data = Data::of(&setting)?;
        let course = Course {
            samples: &data.train,
            training: &training,
        };
        let progress = checkpoint::load().and_then(|kept| Begun::read(&kept));
        let keep = |begun: &Begun| drop(checkpoint::save(&begun.write()));
        let trained = course.run(&start, progress, keep);
        Ok(Fitted {
            model: arrays(&trained.model),
            control_change: Vec::new(),
            samples: data.train.len() as u64,
            steps: trained.steps,
            loss: trained.loss(),
            metrics: Vec::new(),
            state: Vec::new(),
        })
    }

    fn evaluate(setting: Setting, model: Vec<Array>) -> Result<Judged, Error> {
        let (model, held) = (numbers(&model)?, Data::held_of(&setting)?);
        let (both, either, loss) = Way::default().judge(&model, &held);
        Ok(Judged {
            samples: either,
            correct: both,
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
fn numbers(given: &[Array]) -> Result<Vec<f32>, Error> {
    let wanted = net::arrays();
    let fits =
        |array: &Array, (name, shape): &(String, Vec<u32>)| array.name == *name && array.shape == *shape;
    if given.len() != wanted.len() || !given.iter().zip(&wanted).all(|(one, other)| fits(one, other)) {
        let names: Vec<String> = wanted
            .iter()
            .map(|(name, shape)| format!("{name} {shape:?}"))
            .collect();
        return Err(refused(
            "model",
            &format!("its arrays are not {}", names.join(", ")),
        ));
    }
    let numbers: Vec<f32> = given
        .iter()
        .flat_map(|array| array.values.iter().copied())
        .collect();
    match numbers.len() == LENGTH {
        true => Ok(numbers),
        false => Err(refused(
            "model",
            "an array has not as many numbers as its shape says",
        )),
    }
}

fn arrays(numbers: &[f32]) -> Vec<Array> {
    let mut rest = numbers;
    let named = net::arrays().into_iter().map(|(name, shape)| {
        let (values, more) = rest.split_at(shape.iter().product::<u32>() as usize);
        rest = more;
        Array {
            name,
            shape,
            values: values.to_vec(),
        }
    });
    named.collect()
}

export!(Client);
