//! The controls of the power-cut harness: a writer that syncs before it acknowledges, and one that does not.
//!
//! usage: `plain-writer synced|careless FILE RECORDS`
//!
//! Appends numbered records of 64 bytes to FILE and prints the number of each one that it acknowledges.

use std::io::Write;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, how, path, records] = &arguments[..] else { panic!("usage: plain-writer synced|careless FILE RECORDS") };
    let synced = match how.as_str() {
        "synced" => true,
        "careless" => false,
        other => panic!("neither synced nor careless: {other}"),
    };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("the file opens");
    if synced {
        let directory = std::path::Path::new(path).parent().expect("a directory");
        std::fs::File::open(directory).and_then(|d| d.sync_all()).expect("the directory is synced");
    }
    for number in 0..records.parse::<u32>().expect("a number") {
        file.write_all(format!("{number:>63}\n").as_bytes()).expect("a write");
        if synced {
            file.sync_data().expect("a sync");
        }
        println!("{number}");
    }
}
