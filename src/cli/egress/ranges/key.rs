//! `tidegate egress ranges key`: the key that signs what is published.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use config::Appliance;
use egress::caller::SigningKey;
use serde_json::json;

use super::super::super::Shell;
use super::super::super::args::RangesKey;
use super::super::super::exit::{Exit, Failure, Outcome};
use super::super::super::settings;
use super::shown;

/// Its name in the state directory, where the file names no other place.
const FILE_NAME: &str = "egress-ranges.key.pem";

pub(super) fn run(args: &RangesKey, shell: &mut Shell<'_>) -> Outcome {
    let appliance = settings::appliance(&args.file.config)?;
    let key = if args.make { make(&appliance)? } else { read(&appliance, shell)? };
    let public = key.public();
    if args.form.json {
        let reference = reference(&appliance);
        shell.out.json(&json!({
            "signingKey": reference,
            "publicKey": public.to_string(),
            "publicKeyPem": public.to_pem(),
        }))?;
    } else {
        shell.out.text(public.to_pem())?;
        shell.out.remark(format_args!("{public}: who checks the document pins this"));
    }
    Ok(Exit::Yes)
}

fn reference(appliance: &Appliance) -> String {
    match &appliance.egress.ranges.signing_key {
        Some(reference) => reference.value.clone(),
        None => format!("file:{}", appliance.tenants.state_directory.join(FILE_NAME).display()),
    }
}

fn make(appliance: &Appliance) -> Outcome<SigningKey> {
    let reference = reference(appliance);
    let Some(path) = reference.strip_prefix("file:").map(PathBuf::from) else {
        return Err(Failure::failed(
            "egress.ranges.signing_key is no file, so it is not made here",
            "`openssl genpkey -algorithm ed25519` makes one for wherever it is kept",
        ));
    };
    let failed = |error: std::io::Error| {
        let next = "one that is there is never replaced: `tidegate egress ranges key` shows it";
        Failure::failed(format_args!("could not make {}: {error}", shown(&path)), next)
    };
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    let (key, pem) = SigningKey::generate().map_err(|_| Failure::plain("the operating system gives no randomness"))?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    file.write_all(pem.expose()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(key)
}

/// The key of the configuration.
pub(super) fn read(appliance: &Appliance, shell: &mut Shell<'_>) -> Outcome<SigningKey> {
    let failed = |fault: &dyn std::fmt::Display| {
        Failure::failed(
            format_args!("the key that signs exit ranges (egress.ranges.signing_key) {fault}"),
            "`tidegate egress ranges key --make` makes one; it is only needed where the book is written",
        )
    };
    let resolved = config::resolve_secret(&reference(appliance), shell.environment).map_err(|fault| failed(&fault))?;
    if let Some(warning) = &resolved.warning {
        shell.out.remark(format_args!("signing_key {warning}"));
    }
    SigningKey::parse(resolved.secret.expose()).map_err(|fault| failed(&fault))
}
