//! Shapes of tiles, measured once per device and kept in a small file.

use crate::device::{Class, Device, DeviceInfo, Repeat, Wgpu};
use crate::error::GpuError;
use crate::kernel::{Gemm, Kernel, Words, grid};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// How a product of matrices is cut on a GPU: a workgroup computes `rows` by `columns`, `depth` of the inner dimension at a time, a
/// thread `per_thread` rows by 4 columns.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Tile {
    /// Rows of a workgroup.
    pub rows: u32,
    /// Columns of a workgroup; a multiple of 4.
    pub columns: u32,
    /// The inner dimension at a time.
    pub depth: u32,
    /// Rows of a thread; divides `rows`.
    pub per_thread: u32,
}

/// What is tried, all within 256 threads and 16 KiB.
pub const CANDIDATES: [Tile; 6] = [
    Tile {
        rows: 64,
        columns: 64,
        depth: 16,
        per_thread: 4,
    },
    Tile {
        rows: 64,
        columns: 64,
        depth: 8,
        per_thread: 8,
    },
    Tile {
        rows: 128,
        columns: 64,
        depth: 16,
        per_thread: 8,
    },
    Tile {
        rows: 32,
        columns: 32,
        depth: 16,
        per_thread: 4,
    },
    Tile {
        rows: 32,
        columns: 64,
        depth: 32,
        per_thread: 8,
    },
    Tile {
        rows: 16,
        columns: 16,
        depth: 16,
        per_thread: 4,
    },
];

impl Tile {
    /// Before anything was measured: large tiles where registers hold them, small ones where a processor computes.
    pub const fn for_device(device: &DeviceInfo) -> Self {
        match device.class {
            Class::Software | Class::Processor => CANDIDATES[3],
            _ => CANDIDATES[0],
        }
    }

    /// Whether a device has room for it.
    pub const fn fits(self, device: &DeviceInfo) -> bool {
        let shared = 4 * self.depth * (self.rows + self.columns);
        let sound = self.per_thread > 0 && self.columns.is_multiple_of(4) && self.depth > 0;
        sound
            && self.rows.is_multiple_of(self.per_thread)
            && self.columns > 0
            && self.rows > 0
            && self.columns / 4 * (self.rows / self.per_thread) <= device.most_threads
            && shared <= device.most_shared
    }

    pub(crate) fn constants(self) -> Vec<(&'static str, u32)> {
        vec![
            ("TILE_M", self.rows),
            ("TILE_N", self.columns),
            ("TILE_K", self.depth),
            ("THREAD_M", self.per_thread),
        ]
    }

    /// Threads of a workgroup.
    pub(crate) fn threads(self) -> [u32; 3] {
        [self.columns / 4, self.rows / self.per_thread, 1]
    }

    /// A workgroup for each tile of this many products; `tile.wgsl` counts them.
    pub(crate) fn workgroups(self, rows: u32, columns: u32, layers: u32) -> [u32; 3] {
        let (across, down) = (columns.div_ceil(self.columns), rows.div_ceil(self.rows));
        grid(u64::from(across) * u64::from(down) * u64::from(layers))
    }
}

/// The best tiles by device, as they were measured on this machine.
///
/// The file is small, and of no worth: what does not read is measured again.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Tuned(BTreeMap<String, Tile>);

impl Tuned {
    /// What the file holds; nothing when there is none or it does not read.
    pub fn load(file: &Path) -> Self {
        let text = std::fs::read(file).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Writes it.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn save(&self, file: &Path) -> std::io::Result<()> {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_vec_pretty(self)?;
        // A reader sees the old file or the new one.
        let beside = file.with_extension("new");
        std::fs::write(&beside, text)?;
        std::fs::rename(beside, file)
    }

    /// The tile for a device, if it was measured with this driver, is one of [`CANDIDATES`] and fits.
    pub fn get(&self, device: &DeviceInfo) -> Option<Tile> {
        let known = self.0.get(&key(device)).copied();
        known.filter(|tile| CANDIDATES.contains(tile) && tile.fits(device))
    }

    /// Keeps a tile.
    pub fn set(&mut self, device: &DeviceInfo, tile: Tile) {
        self.0.insert(key(device), tile);
    }
}

/// Another driver is another device.
fn key(device: &DeviceInfo) -> String {
    format!("{} {} {}", device.api, device.name, device.driver)
}

/// Tries every candidate on a product of `side` cubed and leaves the device with the fastest.
///
/// # Errors
/// When the device fails.
pub fn tune(device: &mut Wgpu, side: u32, within: Duration) -> Result<Tile, GpuError> {
    let kernel = Kernel::Gemm(Gemm {
        m: side,
        n: side,
        k: side,
        ..Gemm::default()
    });
    let matrix: Words = (0..side * side)
        .map(|place| ((place % 17) as f32 - 8.0).to_bits())
        .collect();
    let mut best: Option<(Duration, Tile)> = None;
    let info = device.info().clone();
    for tile in CANDIDATES.into_iter().filter(|tile| tile.fits(&info)) {
        device.set_tile(tile);
        let prepared = device.prepare(&kernel, &[&matrix, &matrix])?;
        // The first run compiles.
        device.repeat(&prepared, 1, within)?;
        let mut took = Duration::MAX;
        for _ in 0..3 {
            took = took.min(device.repeat(&prepared, 1, within)?);
        }
        if best.is_none_or(|(least, _)| took < least) {
            best = Some((took, tile));
        }
    }
    let tile = best.map_or_else(|| Tile::for_device(device.info()), |(_, tile)| tile);
    device.set_tile(tile);
    Ok(tile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Cpu;

    fn device() -> DeviceInfo {
        DeviceInfo {
            most_threads: 256,
            most_shared: 16 << 10,
            ..Cpu::new(1).info().clone()
        }
    }

    #[test]
    fn every_candidate_fits_the_least_device() {
        assert!(CANDIDATES.iter().all(|tile| tile.fits(&device())));
    }

    #[test]
    fn tiles_are_kept_per_driver_and_a_broken_file_is_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sub/tiles.json");
        assert_eq!(Tuned::load(&file), Tuned::default());
        let mut tuned = Tuned::default();
        tuned.set(&device(), CANDIDATES[4]);
        tuned.save(&file).unwrap();
        let read = Tuned::load(&file);
        assert_eq!(read.get(&device()), Some(CANDIDATES[4]));
        assert_eq!(
            read.get(&DeviceInfo {
                driver: "newer".into(),
                ..device()
            }),
            None
        );
        assert_eq!(
            read.get(&DeviceInfo {
                most_threads: 16,
                ..device()
            }),
            None
        );
        std::fs::write(&file, "{").unwrap();
        assert_eq!(Tuned::load(&file), Tuned::default());
    }
}
