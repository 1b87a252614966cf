use std::collections::HashMap;
use wgpu::{Buffer, BufferDescriptor, BufferUsages, Device};

/// Buffers that are free, by size and use. What they hold is not cleared.
#[derive(Default)]
pub(super) struct Pool {
    free: HashMap<(u64, BufferUsages), Vec<Buffer>>,
    bytes: u64,
}

/// The most that lies idle. A pool over it is emptied.
const MOST_IDLE: u64 = 256 << 20;

impl Pool {
    /// A buffer of exactly this size, for shaders see its length.
    pub(super) fn take(&mut self, device: &Device, size: u64, usage: BufferUsages) -> Buffer {
        if let Some(buffer) = self.free.get_mut(&(size, usage)).and_then(Vec::pop) {
            self.bytes -= size;
            return buffer;
        }
        device.create_buffer(&BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        })
    }

    /// Takes it back.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        if self.bytes + buffer.size() > MOST_IDLE {
            self.free.clear();
            self.bytes = 0;
        }
        if buffer.size() <= MOST_IDLE {
            self.bytes += buffer.size();
            self.free
                .entry((buffer.size(), buffer.usage()))
                .or_default()
                .push(buffer);
        }
    }
}
