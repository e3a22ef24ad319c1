//! Automations that nothing happens to: what they take on the disk, how long a store of them takes to open, and what it
//! has in memory then, and after a thousand of them were looked for.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use domain::{EndpointId, SystemClock, TenantId};
use runner::automation::embedded::{EmbeddedDefinitions, Settings};
use runner::automation::{DefinitionStore, Stored};
use runner::ids::{AutomationId, Version};
use serde::{Deserialize, Serialize};

use crate::server::fresh;
use crate::{Result, process};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub automations: u64,
    pub json_bytes: usize,
    pub stored_per_second: f64,
    pub disk_bytes_each: f64,
    pub open_seconds: f64,
    /// What opening added to the process.
    pub open_resident_bytes: u64,
    /// The same where the index was lost and is made anew from the journal.
    pub rebuild_seconds: f64,
    pub look_up_ms: f64,
    /// What is added once a thousand were looked up and read.
    pub used_resident_bytes: u64,
}

/// Automations that are looked for, of all there are.
const LOOKED_FOR: u64 = 1_000;

/// A document of the usual size: two calls and a branch.
fn usual(number: u64) -> Result<Stored> {
    let json = format!(
        r#"{{"name":"automation {number}","nodes":[{{"body":{{"customer":"${{event.body.customer.id}}","amount":"${{event.body.total * 100}}","description":"order ${{event.body.id}}"}},"credential":"conn_stripe","effectful":true,"id":"charge","method":"POST","path":"/v1/charges","retryPolicy":{{"maxAttempts":5}},"timeoutMs":20000,"type":"http.request"}},{{"cases":[{{"case":"large","when":"event.body.total > 1000"}}],"id":"decide","type":"branch"}},{{"after":["decide.large"],"credential":"conn_slack","id":"tell","input":{{"channel":"sales","text":"a large one"}},"type":"slack.post_message"}}],"trigger":{{"endpoint":"wh_{number}"}}}}"#
    );
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Ok(Stored {
        tenant: TenantId::parse(&format!("tenant-{}", number % 1_000))?,
        id: AutomationId::from_bytes(bytes),
        version: Version::MIN,
        name: format!("automation {number}").into(),
        digest: *blake3::hash(json.as_bytes()).as_bytes(),
        json: json.into(),
        endpoints: [EndpointId::parse(&format!("wh_{number}"))?].into(),
        is_enabled: true,
        is_deleted: false,
        at_unix_ms: number,
        by: "bench".into(),
    })
}

pub fn measure(scratch: &Path, count: u64) -> Result<Row> {
    let directory = fresh(scratch, "runner-dormant")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let settings = Settings::new(&directory);
        let (store, _) = EmbeddedDefinitions::open(&settings, SystemClock::shared())?;
        let (began, mut number) = (Instant::now(), 0);
        while number < count {
            // As many at once as wait for one write.
            let next = (number + 512).min(count);
            let puts = (number..next).map(|n| Ok(tokio::spawn(store.put(usual(n)?)))).collect::<Result<Vec<_>>>()?;
            for put in puts {
                put.await??;
            }
            number = next;
        }
        let stored_per_second = count as f64 / began.elapsed().as_secs_f64();
        drop(store);
        let disk_bytes_each = process::disk_bytes(&directory) as f64 / count as f64;
        // A process that has stored a million has stretched its memory: another one opens them.
        let row: Opened = crate::quota::child(
            &std::env::current_exe()?,
            &[
                "opened",
                "--directory",
                directory.to_str().ok_or("a path in UTF-8")?,
                "--automations",
                &count.to_string(),
            ],
        )?;
        // Last, since what is made anew is larger in memory than what was read.
        std::fs::remove_dir_all(directory.join("index"))?;
        let began = Instant::now();
        let (store, opened) = EmbeddedDefinitions::open(&settings, SystemClock::shared())?;
        let rebuild_seconds = began.elapsed().as_secs_f64();
        if !opened.is_rebuilt {
            return Err("the index was not made anew".into());
        }
        drop(store);
        std::fs::remove_dir_all(&directory)?;
        Ok(Row {
            automations: count,
            json_bytes: usual(0)?.json.len(),
            stored_per_second,
            disk_bytes_each,
            open_seconds: row.seconds,
            open_resident_bytes: row.resident_bytes,
            rebuild_seconds,
            look_up_ms: row.look_up_ms,
            used_resident_bytes: row.used_resident_bytes,
        })
    })
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Opened {
    seconds: f64,
    resident_bytes: u64,
    look_up_ms: f64,
    used_resident_bytes: u64,
}

/// In a process of its own.
pub fn opened(directory: &Path, count: u64) -> Result<Opened> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let resident = || Ok::<_, crate::Error>(process::memory(std::process::id())?.resident_bytes);
        let (before, began) = (resident()?, Instant::now());
        let (store, _) = EmbeddedDefinitions::open(&Settings::new(directory), SystemClock::shared())?;
        let (seconds, store) = (began.elapsed().as_secs_f64(), Arc::new(store));
        let resident_bytes = resident()?.saturating_sub(before);
        let began = Instant::now();
        for n in 0..LOOKED_FOR {
            let one = usual(n * 7_919 % count)?;
            let found = store.triggered_by(&one.tenant, &one.endpoints[0]).await?;
            if found != [(one.id, Version::MIN)] || store.get(&one.tenant, one.id, None).await?.is_none() {
                return Err("an automation is not found".into());
            }
        }
        let look_up_ms = began.elapsed().as_secs_f64() * 1e3 / LOOKED_FOR as f64;
        Ok(Opened { seconds, resident_bytes, look_up_ms, used_resident_bytes: resident()?.saturating_sub(before) })
    })
}

pub(super) fn print(row: &Row) {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "\n{} automations of {} bytes: {:.0} bytes on the disk each, stored at {:.0}/s; opened in {:.2} s with {:.1} MiB, \
         in {:.1} s without its index; {:.3} ms to find and read one, {:.1} MiB after a thousand of them",
        row.automations,
        row.json_bytes,
        row.disk_bytes_each,
        row.stored_per_second,
        row.open_seconds,
        mib(row.open_resident_bytes),
        row.rebuild_seconds,
        row.look_up_ms,
        mib(row.used_resident_bytes)
    );
}
