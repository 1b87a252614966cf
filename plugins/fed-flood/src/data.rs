//! Which pictures this client has, in tiles.

use crate::{Error, Setting, property, refused};
use fastrand::Rng;
use flood_scene::{SIDE, Scene, Shot, take};

/// Pixels of a tile from side to side.
pub(crate) const TILE: usize = 32;
/// Pixels of a tile.
pub(crate) const AREA: usize = TILE * TILE;
/// Bands of a picture.
pub(crate) const BANDS: usize = 3;
/// The share of a tile that clouds may hide.
const MOST_HIDDEN: f32 = 0.4;
/// The most pictures to train on: their tiles take half of the memory that a client has.
const MOST_PICTURES: usize = 96;
/// The most pictures to judge by: their pixels are counted, and a run takes 100,000 samples of a client.
const MOST_HELD: usize = 6;
/// Seeds of pictures to train on, and of those that are held back. The satellite's own are others.
const TRAIN_SEED: u32 = 20_000;
const HELD_SEED: u32 = 60_000;

/// A tile with the truth about it.
#[derive(Clone)]
pub(crate) struct Sample {
    /// Band by band, 0 to 1.
    pub(crate) image: Vec<f32>,
    /// Where water can be seen.
    pub(crate) water: Vec<bool>,
}

/// What this client trains on, and what it judges models by.
pub(crate) struct Data {
    pub(crate) train: Vec<Sample>,
    pub(crate) held: Vec<Sample>,
}

impl Data {
    pub(crate) fn of(setting: &Setting) -> Result<Self, Error> {
        let wanted = Wanted::of(setting)?;
        Ok(Self {
            train: fewer_dry(wanted.tiles(TRAIN_SEED, wanted.pictures)?),
            held: wanted.held()?,
        })
    }

    /// What is held back alone: the rest takes its time to make.
    pub(crate) fn held_of(setting: &Setting) -> Result<Vec<Sample>, Error> {
        Wanted::of(setting)?.held()
    }
}

struct Wanted {
    column: usize,
    row: usize,
    pictures: usize,
    held: usize,
    /// Which of how many clients.
    index: usize,
    count: usize,
}

impl Wanted {
    fn of(setting: &Setting) -> Result<Self, Error> {
        let place = property(setting, "place").unwrap_or("100,255");
        let place = place.split_once(',').and_then(|(column, row)| {
            let column = column.trim().parse().ok()?;
            Some((column, row.trim().parse().ok()?))
        });
        let (column, row) =
            place.ok_or_else(|| refused("place", "it is a column and a row, such as 100,255"))?;
        let number = |name: &str, default: usize, most: usize| match property(setting, name) {
            None => Ok(default),
            Some(text) => (text.parse().ok())
                .filter(|number| (1..=most).contains(number))
                .ok_or_else(|| refused(name, &format!("it is a number from 1 to {most}"))),
        };
        let (index, count) = match &setting.share {
            None => (0, 1),
            Some(share) if share.index < share.count => (share.index as usize, share.count as usize),
            Some(_) => return Err(refused("share", "its index is not below its count")),
        };
        Ok(Self {
            column,
            row,
            pictures: number("pictures", 16, MOST_PICTURES)?,
            held: number("held", 4, MOST_HELD)?,
            index,
            count,
        })
    }

    fn held(&self) -> Result<Vec<Sample>, Error> {
        self.tiles(HELD_SEED, self.held)
    }

    /// The tiles of so many pictures: of all that there are from this seed on, each client has those at its place.
    fn tiles(&self, seed: u32, pictures: usize) -> Result<Vec<Sample>, Error> {
        let mut tiles = Vec::new();
        for number in 0..pictures {
            let number = (number * self.count + self.index) as u32;
            let seed = seed.wrapping_add(number);
            let mut random = Rng::with_seed(seed.into());
            let shot = Shot {
                column: self.column,
                row: self.row,
                level: 6.0 + 38.0 * random.f32(),
                clouds: 0.5 * random.f32(),
                seed,
            };
            let scene = take(&shot).map_err(|why| refused("place", &why))?;
            tiles.extend(cut(&scene));
        }
        Ok(tiles)
    }
}

/// The tiles of a picture in which something can be seen.
fn cut(scene: &Scene) -> impl Iterator<Item = Sample> {
    let truth = scene.truth();
    let across = SIDE / TILE;
    (0..across * across).filter_map(move |place| {
        let pixels = |at: usize| {
            let (row, column) = (
                place / across * TILE + at / TILE,
                place % across * TILE + at % TILE,
            );
            row * SIDE + column
        };
        let hidden = (0..AREA).filter(|at| truth[pixels(*at)] == 2).count();
        let band = |band: usize| (0..AREA).map(move |at| f32::from(scene.bands[band][pixels(at)]) / 255.0);
        (hidden as f32 / AREA as f32 <= MOST_HIDDEN).then(|| Sample {
            image: (0..BANDS).flat_map(band).collect(),
            water: (0..AREA).map(|at| truth[pixels(at)] == 1).collect(),
        })
    })
}

/// Most tiles are dry land, which is easy: of those, half as many as there are wet ones.
fn fewer_dry(tiles: Vec<Sample>) -> Vec<Sample> {
    let is_wet = |sample: &Sample| sample.water.contains(&true);
    let wet = tiles.iter().filter(|sample| is_wet(sample)).count();
    let (dry, wanted) = (tiles.len() - wet, wet / 2);
    let mut seen = 0;
    let keep = |sample: &Sample| {
        if is_wet(sample) {
            return true;
        }
        // Evenly from all pictures.
        seen += 1;
        seen * wanted / dry.max(1) > (seen - 1) * wanted / dry.max(1)
    };
    let mut tiles = tiles;
    tiles.retain(keep);
    tiles
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::setting;

    #[test]
    fn clients_have_other_pictures_with_about_as_much_water() {
        let few = [("pictures", "3"), ("held", "2")];
        let [one, other] = [0, 1].map(|index| Data::of(&setting(index, 2, &few)).unwrap());
        assert!(one.train[0].image != other.train[0].image);
        for data in [&one, &other] {
            let wet = data.train.iter().filter(|sample| sample.water.contains(&true));
            let wet = wet.count();
            assert!(wet > 3 && data.train.len() - wet <= wet / 2, "{wet}");
            assert!(!data.held.is_empty());
            assert!(data.held.iter().all(|sample| sample.image.len() == BANDS * AREA));
        }
        assert_eq!(Data::held_of(&setting(0, 2, &few)).unwrap().len(), one.held.len());
    }

    #[test]
    fn what_is_no_description_of_pictures_is_refused() {
        for (key, value) in [
            ("place", "here"),
            ("place", "900,0"),
            ("pictures", "0"),
            ("held", "many"),
        ] {
            assert!(
                Data::of(&setting(0, 2, &[(key, value)])).is_err(),
                "{key} {value}"
            );
        }
        assert!(Data::of(&setting(2, 2, &[])).is_err());
    }
}
