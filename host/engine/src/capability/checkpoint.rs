//! `karman:federated/checkpoint`: how far a client's training has come, kept by its node.

use super::bindings::federated::karman::federated::{checkpoint, types};
use crate::host::Host;
use karman_types::{ByteSize, TaskError};
use wasmtime::component::{HasSelf, Linker};

/// The most that one client may keep.
const MOST: ByteSize = ByteSize::mib(64);

/// Keeps the progress of one order.
pub trait Progress: Send + Sync {
    /// Keeps this, instead of what was kept before.
    ///
    /// # Errors
    /// What the disk refuses.
    fn save(&self, progress: Vec<u8>) -> Result<(), TaskError>;

    /// What was kept last.
    fn load(&self) -> Option<Vec<u8>>;
}

pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    types::add_to_linker::<_, HasSelf<Host>>(linker, |host| host)?;
    checkpoint::add_to_linker::<_, HasSelf<Host>>(linker, |host| host)
}

impl types::Host for Host {}

impl checkpoint::Host for Host {
    async fn save(&mut self, progress: Vec<u8>) -> wasmtime::Result<Result<(), String>> {
        if progress.len() as u64 > MOST.0 {
            return Ok(Err(format!(
                "{} bytes of progress; at most {MOST} are kept",
                progress.len()
            )));
        }
        Ok(match &self.services.progress {
            Some(kept) => kept.save(progress).map_err(|error| error.message),
            None => Err("nothing is kept where no order is carried out".into()),
        })
    }

    async fn load(&mut self) -> wasmtime::Result<Option<Vec<u8>>> {
        Ok(self.services.progress.as_ref().and_then(|kept| kept.load()))
    }
}
