//! `tidegate grant --tenant T`: a grant as the platform would sign it.

use std::net::{IpAddr, Ipv4Addr};

use config::{Appliance, Issuer};
use domain::TenantId;
use domain::text::Untrusted;
use egress::caller::{Arrival, GrantFault, NewGrant, Presented, SigningKey, Tls, Unproved};
use serde_json::json;

use super::super::Shell;
use super::super::args::GrantMint;
use super::super::exit::{Exit, Failure, Outcome};
use super::super::settings::Configured;
use super::known::Known;
use crate::control::time::rfc3339;

pub(super) fn run(args: &GrantMint, shell: &mut Shell<'_>) -> Outcome {
    let Some(tenant) = args.tenant.clone() else {
        return Err(Failure::usage("a grant is for a tenant", "name it with --tenant"));
    };
    let configured = Configured::load(&args.file.config, shell)?;
    let appliance = &configured.appliance;
    let issuer = signer(appliance, args.issuer.as_deref())?;
    let key = signing_key(issuer, shell)?;
    let boxed = |text: &Option<String>| text.as_deref().map(Into::into);
    let grant = NewGrant {
        connections: args.connections.clone(),
        destinations: args.destinations.iter().map(|pattern| pattern.to_string().into()).collect(),
        role: boxed(&args.role),
        run: boxed(&args.run),
        automation: boxed(&args.automation),
        class: boxed(&args.class),
        sources: args.sources.clone(),
        calls_max: args.calls_max,
        ..NewGrant::new(&issuer.name.value, &appliance.egress.audience, tenant.clone())
    };
    let minted = grant.mint(&key, shell.clock.unix_ms(), args.ttl).map_err(super::no_randomness)?;
    // As somebody inside of TLS would ask; from where, a command cannot know.
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let arrival = Arrival { peer: here, local: here, tls: Tls::Anonymous, is_distrusted: false };
    let callers = super::callers(appliance, [], shell)?;
    let refused = match callers.identify(Ok(Presented::given(minted.token.expose())), &arrival) {
        Ok(_) | Err(Unproved::Grant(GrantFault::Source)) => None,
        Err(unproved) => Some(unproved.to_string()),
    };
    if let Some(why) =
        refused.or_else(|| if args.elsewhere { None } else { unknown(args, &tenant, &configured, shell) })
    {
        shell.out.remark(format_args!("no grant was minted, since it would not be taken: {why}"));
        return Ok(Exit::No);
    }
    let expires = rfc3339(minted.expires_unix_ms);
    let token = String::from_utf8_lossy(minted.token.expose());
    if args.form.json {
        shell.out.json(&json!({ "token": token, "jti": minted.id, "tenant": tenant, "expiresAt": expires }))?;
    } else {
        shell.out.line(&token)?;
        shell.out.remark(format_args!("grant {} for tenant {tenant}, until {expires}", minted.id));
    }
    Ok(Exit::Yes)
}

/// What it is for and is not configured here.
fn unknown(args: &GrantMint, tenant: &TenantId, configured: &Configured, shell: &mut Shell<'_>) -> Option<String> {
    match Known::of(tenant, args.role.as_deref(), &args.connections, configured) {
        Known::Yes => None,
        Known::No(unknown) => Some(format!("{}; --elsewhere mints it for another node", unknown.why)),
        Known::Faulty(fault) => {
            shell.out.warn(format_args!("whether it will be taken is not known, the tenant's file is faulty: {fault}"));
            None
        }
    }
}

/// The issuer that is named, or the only one that can sign here.
fn signer<'a>(appliance: &'a Appliance, name: Option<&str>) -> Outcome<&'a Issuer> {
    let issuers = &appliance.egress.issuer;
    if let Some(name) = name {
        let found = issuers.iter().find(|issuer| issuer.name.value == name);
        return found.ok_or_else(|| {
            Failure::failed(
                format_args!("there is no issuer \"{}\"", Untrusted::new(name.as_bytes())),
                "the appliance's file names issuers as [[egress.issuer]]",
            )
        });
    }
    let mut able = issuers.iter().filter(|issuer| issuer.signing_key.is_some());
    match (able.next(), able.next()) {
        (Some(issuer), None) => Ok(issuer),
        (Some(_), Some(_)) => Err(Failure::usage("several issuers have a signing_key", "name one with --issuer")),
        (None, _) => Err(unable("no issuer has a signing_key")),
    }
}

fn unable(what: &str) -> Failure {
    Failure::failed(
        what,
        "`tidegate grant keygen --out FILE` makes one and prints what the appliance's file needs; \
         a platform signs grants with its own key, which the appliance never sees",
    )
}

fn signing_key(issuer: &Issuer, shell: &mut Shell<'_>) -> Outcome<SigningKey> {
    let name = Untrusted::new(issuer.name.value.as_bytes());
    let Some(reference) = &issuer.signing_key else { return Err(unable(&format!("issuer {name} has no signing_key"))) };
    let failed = |fault: &dyn std::fmt::Display| {
        Failure::failed(
            format_args!("the signing_key of issuer {name} (line {}) {fault}", reference.line),
            "it is a PKCS#8 PEM file, as `openssl genpkey -algorithm ed25519` writes it",
        )
    };
    let resolved = config::resolve_secret(&reference.value, shell.environment).map_err(|fault| failed(&fault))?;
    if let Some(warning) = &resolved.warning {
        shell.out.remark(format_args!("signing_key {warning}"));
    }
    SigningKey::parse(resolved.secret.expose()).map_err(|fault| failed(&fault))
}
