//! Memory in use, and its peak.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// Sizes are counted in steps of this many bytes, up to this many steps.
const STEP: usize = 8;
const STEPS: usize = 8192;

/// The system allocator with counters.
#[derive(Debug)]
pub struct Counting {
    live: AtomicUsize,
    peak: AtomicUsize,
    by_size: AtomicBool,
    sizes: [AtomicIsize; STEPS],
}

impl Default for Counting {
    fn default() -> Self {
        Self::new()
    }
}

impl Counting {
    /// An allocator with counters at zero.
    pub const fn new() -> Self {
        Self {
            live: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            by_size: AtomicBool::new(false),
            sizes: [const { AtomicIsize::new(0) }; STEPS],
        }
    }

    /// Bytes in use now.
    pub fn live(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// Peak of the bytes in use since the last [`Counting::reset_peak`].
    pub fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }

    /// Sets the peak to the bytes in use now.
    pub fn reset_peak(&self) {
        self.peak.store(self.live(), Relaxed);
    }

    /// Turns counting by size on or off.
    pub fn count_sizes(&self, on: bool) {
        self.by_size.store(on, Relaxed);
    }

    /// Allocations minus deallocations by size while sizes were counted, from the largest size.
    pub fn sizes(&self) -> impl Iterator<Item = (usize, isize)> {
        self.sizes.iter().enumerate().rev().map(|(step, count)| (step * STEP, count.load(Relaxed)))
    }

    fn count(&self, size: usize, by: isize) {
        if self.by_size.load(Relaxed)
            && let Some(count) = self.sizes.get(size.div_ceil(STEP))
        {
            count.fetch_add(by, Relaxed);
        }
    }

    fn grown(&self, by: usize) {
        self.count(by, 1);
        let live = self.live.fetch_add(by, Relaxed) + by;
        self.peak.fetch_max(live, Relaxed);
    }

    fn shrunk(&self, by: usize) {
        self.count(by, -1);
        self.live.fetch_sub(by, Relaxed);
    }
}

// Each call is forwarded to the system allocator unchanged.
#[expect(unsafe_code, reason = "the trait is unsafe to implement; nothing is done to memory here")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.grown(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.shrunk(layout.size());
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        self.grown(new_size);
        self.shrunk(layout.size());
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}
