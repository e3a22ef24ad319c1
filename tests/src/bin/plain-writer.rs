//! The controls of the power-cut harness: writers that make a record durable before they acknowledge it, and two that
//! do not.
//!
//! usage: `plain-writer synced|careless|direct-synced|direct-careless FILE RECORDS`
//!
//! Writes numbered records to FILE and prints the number of each one that it acknowledges. The first two append 64
//! bytes each, with and without `fdatasync`; the others write blocks of 4,096 bytes with `O_DIRECT` into a file that
//! is there and durable already, with and without `O_DSYNC`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

const BLOCK: usize = 4096;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, how, path, records] = &arguments[..] else { panic!("usage: plain-writer HOW FILE RECORDS") };
    let records: u32 = records.parse().expect("a number");
    match how.as_str() {
        "synced" => append(path, records, true),
        "careless" => append(path, records, false),
        "direct-synced" => direct(path, records, true),
        "direct-careless" => direct(path, records, false),
        other => panic!("no such way of writing: {other}"),
    }
}

fn sync_directory(path: &str) {
    let directory = Path::new(path).parent().expect("a directory");
    File::open(directory).and_then(|d| d.sync_all()).expect("the directory is synced");
}

fn append(path: &str, records: u32, synced: bool) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("the file opens");
    if synced {
        sync_directory(path);
    }
    for number in 0..records {
        file.write_all(format!("{number:>63}\n").as_bytes()).expect("a write");
        if synced {
            file.sync_data().expect("a sync");
        }
        println!("{number}");
    }
}

fn direct(path: &str, records: u32, synced: bool) {
    let mut file = File::create(path).expect("the file is made");
    for _ in 0..records {
        file.write_all(&[0; BLOCK]).expect("zeros");
    }
    file.sync_all().expect("a sync");
    sync_directory(path);

    let flags = OFlags::DIRECT | if synced { OFlags::DSYNC } else { OFlags::empty() };
    let flags = i32::try_from(flags.bits()).expect("flags of open(2)");
    let file = OpenOptions::new().write(true).custom_flags(flags).open(path).expect("the file opens");
    // A block of this buffer that begins where the device wants it.
    let mut buffer = vec![0_u8; 2 * BLOCK];
    let begin = buffer.as_ptr().align_offset(BLOCK);
    let block = &mut buffer[begin..begin + BLOCK];
    for number in 0..records {
        block.fill(b' ');
        block[..64].copy_from_slice(format!("{number:>63}\n").as_bytes());
        file.write_all_at(block, u64::from(number) * BLOCK as u64).expect("a direct write");
        println!("{number}");
    }
}
