//! The disk's own durable write: what no log can be faster than.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::Result;

const BLOCK: usize = 4_096;
const BLOCKS: u64 = 4_096;

/// Durable writes of 4 KiB, one after the other, into a file that is there already.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Durable {
    pub writes: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub p999_ms: f64,
    pub max_ms: f64,
    /// `O_DIRECT` was refused: writes went through the page cache.
    pub buffered: bool,
}

pub fn probe(directory: &Path, span: Duration) -> Result<Durable> {
    fs::create_dir_all(directory)?;
    let path = directory.join("probe");
    // Written once, so that the timed writes allocate nothing: the log writes into prepared extents too.
    fs::write(&path, vec![0; BLOCK * BLOCKS as usize])?;
    fs::File::open(&path)?.sync_all()?;
    let open = |flags| rustix::fs::open(&path, OFlags::WRONLY | OFlags::DSYNC | OFlags::CLOEXEC | flags, Mode::empty());
    let (file, buffered) = match open(OFlags::DIRECT) {
        Ok(file) => (file, false),
        Err(_) => (open(OFlags::empty())?, true),
    };
    let memory = vec![0x5a_u8; 2 * BLOCK];
    let aligned = memory.as_ptr().align_offset(BLOCK);
    let block = &memory[aligned..aligned + BLOCK];

    let mut latency = Histogram::<u64>::new_with_bounds(1_000, 60_000_000_000, 3)?;
    let end = Instant::now() + span;
    let mut at = 0;
    while Instant::now() < end {
        let began = Instant::now();
        if rustix::io::pwrite(&file, block, (at % BLOCKS) * BLOCK as u64)? != BLOCK {
            return Err("a short write".into());
        }
        latency.saturating_record(began.elapsed().as_nanos() as u64);
        at += 1;
    }
    fs::remove_file(&path)?;
    let ms = |quantile| latency.value_at_quantile(quantile) as f64 / 1e6;
    Ok(Durable { writes: at, p50_ms: ms(0.5), p99_ms: ms(0.99), p999_ms: ms(0.999), max_ms: ms(1.0), buffered })
}
