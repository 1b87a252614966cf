//! Writes scenes for training: `dump FILE`, one line of standard input for each, `column row level clouds seed`. A scene is its three
//! bands, then for each pixel 1 where water is seen, 2 where a cloud hides the ground, else 0.

use flood_scene::{Shot, take};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("dump FILE < shots")?;
    let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
    for line in std::io::stdin().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let mut next = || words.next().ok_or("a line has five numbers");
        let scene = take(&Shot {
            column: next()?.parse()?,
            row: next()?.parse()?,
            level: next()?.parse()?,
            clouds: next()?.parse()?,
            seed: next()?.parse()?,
        })?;
        for band in &scene.bands {
            file.write_all(band)?;
        }
        file.write_all(&scene.truth())?;
    }
    Ok(file.flush()?)
}
