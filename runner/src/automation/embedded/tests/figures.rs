//! Figures: a million automations that nothing happens to.
//!
//! `cargo test --release -p tidegate-runner a_million -- --ignored --nocapture`

use std::time::Instant;

use super::*;

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            if meta.is_dir() { disk_bytes(&entry.path()) } else { meta.blocks() * 512 }
        })
        .sum()
}

/// A document of the usual size: one call and a branch, some 600 bytes.
fn usual(number: u64) -> Stored {
    let json = format!(
        r#"{{"name":"automation {number}","nodes":[{{"body":{{"customer":"${{event.body.customer.id}}","amount":"${{event.body.total * 100}}","description":"order ${{event.body.id}}"}},"credential":"conn_stripe","effectful":true,"id":"charge","method":"POST","path":"/v1/charges","retryPolicy":{{"maxAttempts":5}},"timeoutMs":20000,"type":"http.request"}},{{"cases":[{{"case":"large","when":"event.body.total > 1000"}}],"id":"decide","type":"branch"}},{{"after":["decide.large"],"credential":"conn_slack","id":"tell","input":{{"channel":"sales","text":"a large one"}},"type":"slack.post_message"}}],"trigger":{{"endpoint":"wh_{number}"}}}}"#
    );
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Stored {
        tenant: tenant(&format!("tenant-{}", number % 1000)),
        id: AutomationId::from_bytes(bytes),
        version: Version::MIN,
        name: format!("automation {number}").into(),
        digest: *blake3::hash(json.as_bytes()).as_bytes(),
        json: json.into(),
        endpoints: [endpoint(&format!("wh_{number}"))].into(),
        is_enabled: true,
        is_deleted: false,
        at_unix_ms: number,
        by: "ada".into(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute and 3 GB of disk, and prints figures"]
#[expect(clippy::disallowed_methods, reason = "a measurement takes the real time, and is told how much to measure")]
async fn a_million_dormant_automations() {
    let count: u64 = std::env::var("TIDEGATE_AUTOMATIONS").map_or(1_000_000, |count| count.parse().unwrap());
    let mut rig = Rig::new(Arc::new(RealStorage));
    rig.settings = Settings { reserve_bytes: 0, ..Settings::new(rig.directory.path()) };
    let store = rig.open();
    let began = Instant::now();
    let mut number = 0;
    while number < count {
        // As many at once as wait for one write.
        let next = (number + 512).min(count);
        let puts: Vec<_> = (number..next).map(|number| tokio::spawn(store.put(usual(number)))).collect();
        for put in puts {
            put.await.unwrap().unwrap();
        }
        number = next;
    }
    let json_bytes = usual(0).json.len();
    println!("{count} automations of {json_bytes} bytes stored in {:?}", began.elapsed());
    let stat = store.stat();
    drop(store);
    let on_disk = disk_bytes(rig.directory.path());
    println!(
        "on disk: {} bytes each; journal {} MiB, index {} MiB",
        on_disk / count,
        stat.journal_bytes >> 20,
        stat.index_bytes >> 20
    );

    let before = resident_kib();
    let began = Instant::now();
    let (store, opened) = rig.try_open().unwrap();
    println!("opened in {:?} ({opened:?}), memory {} KiB more", began.elapsed(), resident_kib().saturating_sub(before));
    assert_eq!(opened, Opened::default());
    let began = Instant::now();
    for number in 0..1000_u64 {
        let number = number * 7919 % count;
        let one = usual(number);
        let found = store.triggered_by(&one.tenant, &one.endpoints[0]).await.unwrap();
        assert_eq!(found, [(one.id, Version::MIN)]);
        assert!(store.get(&one.tenant, one.id, None).await.unwrap().is_some());
    }
    println!("a look-up by endpoint and a read: {:?}; memory {} KiB in all", began.elapsed() / 1000, resident_kib());
    drop(store);

    std::fs::remove_dir_all(rig.index()).unwrap();
    let began = Instant::now();
    let (store, opened) = rig.try_open().unwrap();
    println!("index made anew in {:?} ({opened:?})", began.elapsed());
    assert_eq!(store.list(&tenant("tenant-7"), None, 1000).await.unwrap().len() as u64, (count / 1000).min(1000));
}
