//! How busy the GPU is.

use super::{NodeCompute, device, turned_off};
use crate::config::GpuChoice;
use karman_gpu::DeviceUse;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How much the GPU of a node is used.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "state")]
pub enum GpuUse {
    /// Nobody has asked for it since the node began: it is looked for then.
    Unasked,
    /// It is being looked for.
    Starting,
    /// There is none.
    Absent {
        /// What is missing.
        why: String,
    },
    /// It is there.
    Ready {
        /// How it is named here, and what its maker calls it.
        device: String,
        /// Microseconds since it was first asked for.
        since_us: u64,
        /// Microseconds of these in which it worked.
        busy_us: u64,
        /// Pieces of work that it has ended, well or not.
        done: u64,
        /// Pieces of work that wait for their turn.
        waiting: usize,
    },
}

impl NodeCompute {
    /// How much the GPU is used. It is not looked for to tell that.
    pub(in crate::services) fn used(&self) -> GpuUse {
        if self.config.device == GpuChoice::Off {
            let why = turned_off().message;
            return GpuUse::Absent { why };
        }
        // Whoever starts it holds this until that is done.
        let Ok(tried) = self.queue.try_lock() else {
            return GpuUse::Starting;
        };
        match tried.as_ref().map(|tried| &tried.queue) {
            None => GpuUse::Unasked,
            Some(Err(error)) => GpuUse::Absent {
                why: error.message.clone(),
            },
            Some(Ok(queue)) => {
                let DeviceUse {
                    since,
                    busy,
                    done,
                    waiting,
                } = queue.used();
                let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                GpuUse::Ready {
                    device: device(queue.info()),
                    since_us: us(since),
                    busy_us: us(busy),
                    done,
                    waiting,
                }
            }
        }
    }
}
