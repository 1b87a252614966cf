//! A heap of a few instructions: hands out memory upwards and starts again from the bottom once all of it came back,
//! which is so after every call.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::Cell;
use core::ptr::null_mut;

/// Gives the host room for what it passes in. `std` would bring this function; without it, it is ours to bring.
///
/// # Safety
/// `old` is null, or came from here with the same length and alignment.
#[unsafe(no_mangle)]
unsafe extern "C" fn cabi_realloc(old: *mut u8, old_bytes: usize, align: usize, bytes: usize) -> *mut u8 {
    // SAFETY: the host asks for an alignment that is a power of two, and for lengths that fit in 32 bits.
    unsafe {
        let layout = Layout::from_size_align_unchecked(old_bytes, align);
        match (old_bytes, bytes) {
            (0, 0) => align as *mut u8,
            (0, _) => HEAP.alloc(Layout::from_size_align_unchecked(bytes, align)),
            _ => HEAP.realloc(old, layout, bytes),
        }
    }
}

const PAGE: usize = 65536;

#[global_allocator]
static HEAP: Heap = Heap {
    live: Cell::new(0),
    next: Cell::new(0),
    bottom: Cell::new(0),
};

struct Heap {
    /// Pieces handed out and not given back.
    live: Cell<usize>,
    /// The first free address.
    next: Cell<usize>,
    /// Where it starts: the end of the memory that the module came with.
    bottom: Cell<usize>,
}

// SAFETY: a guest has one thread.
unsafe impl Sync for Heap {}

// SAFETY: pieces that are live at the same time never overlap, since `next` only grows while there is one.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let end = core::arch::wasm32::memory_size::<0>() * PAGE;
        if self.bottom.get() == 0 {
            self.bottom.set(end);
            self.next.set(end);
        }
        let start = self.next.get().next_multiple_of(layout.align());
        let next = start.saturating_add(layout.size());
        let pages = next.saturating_sub(end).div_ceil(PAGE);
        if pages > 0 && core::arch::wasm32::memory_grow::<0>(pages) == usize::MAX {
            return null_mut();
        }
        self.live.set(self.live.get() + 1);
        self.next.set(next);
        start as *mut u8
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {
        self.live.set(self.live.get() - 1);
        if self.live.get() == 0 {
            self.next.set(self.bottom.get());
        }
    }
}
