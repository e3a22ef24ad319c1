//! `tidegate grant keygen`: a key pair that signs grants.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use domain::text::Untrusted;
use egress::caller::SigningKey;
use serde_json::json;

use super::super::Shell;
use super::super::args::GrantKeygen;
use super::super::exit::{Exit, Failure, Outcome};

pub(super) fn run(args: &GrantKeygen, shell: &mut Shell<'_>) -> Outcome {
    let failed = |error: std::io::Error| {
        let path = Untrusted::with_limit(args.out.as_os_str().as_encoded_bytes(), 1024);
        Failure::failed(format_args!("could not write {path}: {error}"), "name a file that does not exist yet")
    };
    let (key, pem) = SigningKey::generate().map_err(super::no_randomness)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&args.out).map_err(failed)?;
    file.write_all(pem.expose()).and_then(|()| file.sync_all()).map_err(failed)?;
    let public = key.public();
    let path = std::path::absolute(&args.out).map_err(failed)?;
    if args.form.json {
        shell.out.json(&json!({
            "file": path.to_string_lossy(),
            "publicKey": public.to_string(),
            "publicKeyPem": public.to_pem(),
            "kid": public.thumbprint(),
        }))?;
        return Ok(Exit::Yes);
    }
    let name = toml::Value::from(args.name.as_str());
    let reference = toml::Value::from(format!("file:{}", path.display()));
    shell.out.line(format_args!(
        "[[egress.issuer]]\n\
         name = {name}\n\
         keys = [\"{public}\"]\n\
         tenants = [\"*\"]  # or the ids of those that it may speak for\n\
         signing_key = {reference}  # for `tidegate grant` and the runner: who calls out"
    ))?;
    shell
        .out
        .remark("these lines are for the appliance's file; whoever has the private key can call as any of the tenants");
    Ok(Exit::Yes)
}
