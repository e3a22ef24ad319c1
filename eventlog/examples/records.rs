//! What a store of records takes and gives: `records DIRECTORY RECORDS [BYTES]`.
//!
//! Appends records with a key of their own, one of 1,000 tenants' and one that few have; then looks up single ones, some
//! that are not there, the newest of a tenant and the few, and walks over all of them.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a measurement takes the real time and prints")]

use std::error::Error;
use std::time::{Duration, Instant};

use domain::SystemClock;
use tidegate_eventlog::records::{Key, NewRecord, Order, Query, RecordStore, Settings};

fn record(nth: u64, bytes: usize) -> NewRecord {
    let mut keys = vec![Key::new("id", &nth.to_le_bytes()), Key::new("tenant", &(nth % 1000).to_le_bytes())];
    if nth.is_multiple_of(1_000_003) {
        keys.push(Key::new("rare", b"yes"));
    }
    let mut text = format!("{{\"id\":{nth},\"at\":{},\"tenant\":\"tenant-{}\",", nth * 17, nth % 1000);
    while text.len() < bytes {
        text.push_str("\"destination\":\"api.example.com:443\",\"sentBytes\":");
        text.push_str(&(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (text.len() % 40)).to_string());
        text.push(',');
    }
    NewRecord { time_unix_ms: 1_790_000_000_000 + nth, keys, bytes: text.into_bytes() }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |text| text.parse::<u64>());
    let directory = arguments.get(1).ok_or("which directory?")?;
    let (records, bytes) = (number(2, 1_000_000)?, number(3, 650)?);
    let bytes = usize::try_from(bytes)?;
    let settings = Settings { reserve_bytes: 0, ..Settings::new(directory, Duration::from_hours(720), 64 << 30) };
    let (store, _) = RecordStore::open(&settings, SystemClock::shared())?;

    let started = Instant::now();
    for first in (0..records).step_by(128) {
        let chunk = (first..records.min(first + 128)).map(|nth| record(nth, bytes)).collect();
        let stored = store.append(chunk).wait();
        if stored.lost > 0 {
            return Err(format!("{stored:?}").into());
        }
    }
    let stat = store.stat();
    println!(
        "appended {records} in {:.1} s, {} segments, {} bytes each",
        started.elapsed().as_secs_f64(),
        stat.segments,
        stat.bytes / records
    );
    let time = |what: &str, times: u32, look: &mut dyn FnMut(u64) -> usize| {
        let started = Instant::now();
        let found: usize = (0..times).map(|nth| look(u64::from(nth))).sum();
        println!("{what}: {:.2} ms each, {found} found", started.elapsed().as_secs_f64() * 1e3 / f64::from(times));
    };
    let query = |key| Query { keys: vec![key], ..Query::default() };
    time("one by its id", 100, &mut |nth| {
        let id = nth.wrapping_mul(0x9e37_79b9_7f4a_7c15) % records;
        let wanted = format!("{{\"id\":{id},");
        let walk = store.walk(query(Key::new("id", &id.to_le_bytes())));
        walk.flatten().filter(|record| record.bytes.starts_with(wanted.as_bytes())).count()
    });
    time("an id that is not there", 100, &mut |nth| {
        store.walk(query(Key::new("id", &(records + nth).to_le_bytes()))).flatten().count()
    });
    time("50 newest of a tenant", 100, &mut |nth| {
        let wanted = format!("\"tenant\":\"tenant-{nth}\"");
        let walk = store.walk(query(Key::new("tenant", &nth.to_le_bytes()))).flatten();
        walk.filter(|record| String::from_utf8_lossy(&record.bytes).contains(&wanted)).take(50).count()
    });
    time("what one in a million has", 10, &mut |_| {
        store.walk(query(Key::new("rare", b"yes"))).flatten().filter(|record| record.bytes.len() > 1).count()
    });
    time("all of them", 1, &mut |_| {
        store.walk(Query { order: Order::OldestFirst, ..Query::default() }).flatten().count()
    });
    store.close();
    Ok(())
}
