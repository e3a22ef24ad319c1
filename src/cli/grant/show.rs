//! `tidegate grant show`: what a proof says, and whether it would be taken.

use std::net::{IpAddr, Ipv4Addr};

use domain::text::Untrusted;
use egress::caller::{Arrival, Identified, Identity, Presented, TOKEN_PREFIX, Tls, TokenHash, peek};
use serde_json::{Map, Value, json};

use super::super::Shell;
use super::super::args::GrantShow;
use super::super::capture;
use super::super::exit::{Exit, Outcome};
use super::super::out::Tone;
use super::super::settings::Configured;
use super::super::table::print_fields;
use super::known::{Known, Unknown};
use crate::control::time::rfc3339;

pub(super) fn run(args: &GrantShow, shell: &mut Shell<'_>) -> Outcome {
    let given = match args.token.as_str() {
        "-" => capture::read("-".as_ref(), shell.stdin)?,
        token => token.as_bytes().to_vec(),
    };
    let proof = given.trim_ascii();
    let is_token = proof.starts_with(TOKEN_PREFIX.as_bytes());
    // Whose a token is stands in any of the tenants' files; whether a grant's tenant is there, in that tenant's.
    let configured = Configured::load(&args.file.config, shell)?;
    let tenants = configured.tenants().filter(|_| is_token);
    let callers = super::callers(&configured.appliance, tenants, shell)?;
    let arrival = if let Some(peer) = args.from {
        Arrival { peer, local: peer, tls: Tls::Anonymous, is_distrusted: false }
    } else {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Arrival { peer: here, local: here, tls: Tls::Absent, is_distrusted: false }
    };
    let verdict = match callers.identify(Ok(Presented::given(proof)), &arrival) {
        Ok(identified) => known(identified, &configured, shell),
        Err(unproved) => Err(Unknown { refusal: unproved.refusal(), why: unproved.to_string() }),
    };
    let said = if is_token { Said::Token(TokenHash::of(proof)) } else { Said::of_grant(proof) };
    if args.form.json {
        shell.out.json(&as_json(&said, &verdict))?;
    } else {
        print(&said, &verdict, shell)?;
    }
    Ok(Exit::yes_if(verdict.is_ok()))
}

/// A proof that holds, if the proxy knows what it names.
fn known(identified: Identified, configured: &Configured, shell: &mut Shell<'_>) -> Result<Identified, Unknown> {
    let caller = &identified.caller;
    let connections = caller.connections.as_deref().unwrap_or_default();
    match Known::of(&caller.tenant, caller.role.as_deref(), connections, configured) {
        Known::Yes => Ok(identified),
        Known::No(unknown) => Err(unknown),
        Known::Faulty(fault) => {
            shell.out.warn(format_args!("what the tenant's file has is not known, it is faulty: {fault}"));
            Ok(identified)
        }
    }
}

/// What a proof says of itself.
enum Said {
    Token(TokenHash),
    Grant {
        header: Map<String, Value>,
        claims: Map<String, Value>,
    },
    /// Nothing that could be read.
    Nothing,
}

impl Said {
    fn of_grant(proof: &[u8]) -> Self {
        let read = |json: &[u8]| serde_json::from_slice(json).ok();
        let peeked = peek(proof).ok().and_then(|(header, claims)| Some((read(&header)?, read(&claims)?)));
        peeked.map_or(Self::Nothing, |(header, claims)| Self::Grant { header, claims })
    }
}

fn as_json(said: &Said, verdict: &Result<Identified, Unknown>) -> Value {
    let mut answer = json!({ "taken": verdict.is_ok() });
    if let Err(Unknown { refusal, why }) = verdict {
        answer["reason"] = why.as_str().into();
        answer["code"] = refusal.code().into();
    }
    match said {
        Said::Token(hash) => answer["hash"] = hash.to_string().into(),
        Said::Grant { header, claims } => {
            answer["header"] = header.clone().into();
            answer["claims"] = claims.clone().into();
        }
        Said::Nothing => {}
    }
    if let Ok(identified) = verdict {
        answer["tenant"] = identified.caller.tenant.as_str().into();
        answer["role"] = identified.caller.role.as_deref().into();
        if let Identity::Token { name } = &identified.caller.identity {
            answer["name"] = (&**name).into();
        }
    }
    answer
}

fn print(said: &Said, verdict: &Result<Identified, Unknown>, shell: &mut Shell<'_>) -> Outcome<()> {
    match verdict {
        Ok(_) => {
            let verdict = shell.out.paint(Tone::Good, "would be taken");
            shell.out.line(verdict)?;
        }
        Err(Unknown { why, .. }) => {
            let verdict = shell.out.paint(Tone::Bad, "would not be taken");
            shell.out.line(format_args!("{verdict}: {why}"))?;
        }
    }
    let mut fields = Vec::new();
    match said {
        Said::Token(hash) => {
            fields.push(("hash", hash.to_string()));
            if let Ok(identified) = verdict {
                let caller = &identified.caller;
                fields.push(("tenant", caller.tenant.to_string()));
                fields.extend(caller.role.iter().map(|role| ("role", safe(role))));
                if let Identity::Token { name } = &caller.identity {
                    fields.push(("name", safe(name)));
                }
                fields.extend(caller.until_unix_ms.map(|until_ms| ("until", rfc3339(until_ms))));
            }
        }
        Said::Grant { header, claims } => {
            fields.extend(header.iter().map(|(name, value)| (name.as_str(), shown(name, value))));
            fields.extend(claims.iter().map(|(name, value)| (name.as_str(), shown(name, value))));
        }
        Said::Nothing => {}
    }
    let fields: Vec<(String, String)> = fields.into_iter().map(|(name, value)| (safe(name), value)).collect();
    let fields: Vec<(&str, String)> = fields.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    print_fields(&mut shell.out, &fields)
}

/// A value of JSON as people read it: text without quotes, times as times.
fn shown(name: &str, value: &Value) -> String {
    let seconds = value.as_u64().filter(|_| matches!(name, "iat" | "nbf" | "exp"));
    match (seconds, value) {
        (Some(seconds), _) => format!("{seconds} ({})", rfc3339(seconds.saturating_mul(1000))),
        (None, Value::String(text)) => safe(text),
        (None, value) => safe(&value.to_string()),
    }
}

fn safe(text: &str) -> String {
    Untrusted::with_limit(text.as_bytes(), 1024).to_string()
}
