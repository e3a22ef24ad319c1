//! `tidegate egress ranges verify`: what a provider's support desk does with a document.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use egress::caller::PublicKey;
use egress::ranges::{At, Checked, DOCUMENT_BYTES_MAX, verify};
use serde_json::json;

use super::super::super::Shell;
use super::super::super::args::RangesVerify;
use super::super::super::exit::{Exit, Failure, Outcome};
use super::shown;

/// Longer than any signature and key.
const SMALL_BYTES_MAX: u64 = 16 << 10;

pub(super) fn run(args: &RangesVerify, shell: &mut Shell<'_>) -> Outcome {
    let beside = || args.documents.first().map(|first| first.with_file_name("egress-ranges.pub.pem"));
    let key_path = args.key.clone().or_else(beside).unwrap_or_default();
    let key = public_key(&key_path)?;
    let now = At::of_unix_ms(shell.clock.unix_ms());
    let mut before: Option<Checked> = None;
    for (path, left) in args.documents.iter().zip((0..args.documents.len()).rev()) {
        let bytes = read(path, DOCUMENT_BYTES_MAX)?;
        let signature = read(&with_sig(path), SMALL_BYTES_MAX)?;
        // Only the last one has to be good today.
        let checked = verify(&bytes, &signature, &key, (left == 0).then_some(now)).and_then(|checked| {
            before.as_ref().map_or(Ok(()), |before| checked.follows(before))?;
            Ok(checked)
        });
        match checked {
            Ok(checked) => {
                say(path, &checked, args, shell)?;
                before = Some(checked);
            }
            Err(fault) => {
                if args.form.json {
                    let (file, pinned) = (shown(path), args.key.is_some());
                    let message = fault.to_string();
                    shell.out.json(&json!({ "ok": false, "pinned": pinned, "file": file, "message": message }))?;
                } else {
                    shell.out.line(format_args!("no: {}: {fault}", shown(path)))?;
                }
                return Ok(Exit::No);
            }
        }
    }
    if args.key.is_none() {
        // Whoever sent the document put that key beside it: a yes would be theirs.
        shell.out.remark(format_args!("{UNPROVEN}; pin the key, and name it with --key"));
    }
    Ok(Exit::yes_if(args.key.is_some()))
}

const UNPROVEN: &str = "the key is the one beside the document: they belong together, and that proves nothing";

fn say(path: &Path, checked: &Checked, args: &RangesVerify, shell: &mut Shell<'_>) -> Outcome<()> {
    let document = &checked.document;
    let (serial, valid_until, is_pinned) = (document.serial, document.valid_until, args.key.is_some());
    if args.form.json {
        let mut said = json!({
            "ok": is_pinned,
            "pinned": is_pinned,
            "file": shown(path),
            "serial": serial,
            "validUntil": valid_until,
        });
        if !is_pinned && let Some(said) = said.as_object_mut() {
            said.insert("message".into(), UNPROVEN.into());
        }
        return shell.out.json(&said);
    }
    let count = |state| document.prefixes.iter().filter(|range| range.state == state).count();
    let states = egress::ranges::State::ALL.map(|state| format!("{} {state}", count(state))).join(", ");
    let word = if is_pinned { "ok" } else { "unproven" };
    shell.out.line(format_args!("{word}: {}: version {serial}, valid until {valid_until}: {states}", shown(path)))
}

/// The public key of a file.
pub(super) fn public_key(path: &Path) -> Outcome<PublicKey> {
    PublicKey::parse(&read(path, SMALL_BYTES_MAX)?)
        .map_err(|fault| Failure::failed(format_args!("{} {fault}", shown(path)), "name the public key with --key"))
}

fn with_sig(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

fn read(path: &Path, bytes_max: u64) -> Outcome<Vec<u8>> {
    let failed = |error: std::io::Error| {
        Failure::failed(
            format_args!("could not read {}: {error}", shown(path)),
            "a document, its .sig and the public key are needed",
        )
    };
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(Failure::plain(format_args!("{} is larger than anything that is published", shown(path))));
    }
    Ok(bytes)
}
