//! Lets a seed decide what a process gets from the operating system at random.
//!
//! Hash maps put their entries in an order of their own, and executors throw dice when several tasks are ready at once. Both ask
//! the system for their first random bytes, once for each thread or process. A process that links this crate and calls
//! [`decide_by`] before it does anything else gets them from the seed instead, and does the same again with the same seed,
//! as far as one thread does everything.
//!
//! This works on Linux, where the standard library leaves room for another `getrandom`; elsewhere nothing changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Whether a seed can decide anything here.
pub const IS_POSSIBLE: bool = cfg!(target_os = "linux");

static IS_SEEDED: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU64 = AtomicU64::new(0);

/// From now on, the seed decides what this process gets at random. Threads that had some before keep theirs.
pub fn decide_by(seed: u64) {
    // Mentioned, so that no linker leaves it out.
    #[cfg(target_os = "linux")]
    std::hint::black_box(system::getrandom as unsafe extern "C" fn(_, _, _) -> _);
    STATE.store(seed, Ordering::SeqCst);
    IS_SEEDED.store(true, Ordering::SeqCst);
}

/// The next numbers that the seed decides (SplitMix64).
#[cfg(target_os = "linux")]
fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut z = STATE.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::c_void;
    use std::fs::File;
    use std::io::Read;
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    /// What the system has at random, without its function `getrandom`.
    fn device() -> Option<&'static File> {
        static DEVICE: OnceLock<Option<File>> = OnceLock::new();
        DEVICE.get_or_init(|| File::open("/dev/urandom").ok()).as_ref()
    }

    /// Stands in for the C library's function of that name.
    ///
    /// # Safety
    /// The buffer has room for `length` bytes.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, _flags: u32) -> isize {
        let mut part = [0; 256];
        let count = length.min(part.len());
        let part = &mut part[..count];
        if super::IS_SEEDED.load(Ordering::SeqCst) {
            for bytes in part.chunks_mut(8) {
                bytes.copy_from_slice(&super::next().to_le_bytes()[..bytes.len()]);
            }
        } else if device().is_none_or(|mut device| device.read_exact(part).is_err()) {
            return -1;
        }
        // SAFETY: the caller's buffer has room for `length` bytes, and `count` is no more than that.
        unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), buffer.cast::<u8>(), count) };
        // Callers ask again for the rest.
        count as isize
    }
}
