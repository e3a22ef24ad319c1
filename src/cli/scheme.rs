//! Which scheme a command is about, with which keys, at which URL.

use std::sync::Arc;

use config::scheme::SchemeDeclaration;
use domain::Secret;
use domain::text::Untrusted;
use gateway::scheme::{ActiveKey, Key, Presets, Scheme};

use super::Shell;
use super::args::SchemeAndKey;
use super::exit::{Failure, Outcome};
use super::settings::Configured;

/// A scheme with the keys of one sender.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) scheme: Arc<Scheme>,
    pub(crate) keys: Vec<NamedKey>,
    /// The whole URL that the provider posts to, where the configuration knows it.
    pub(crate) url: Option<String>,
}

/// A key and what evidence calls it.
#[derive(Debug)]
pub(crate) struct NamedKey {
    pub(crate) name: String,
    pub(crate) key: Key,
    /// As it was configured: for trying what else might have been meant.
    pub(crate) secret: Secret,
    pub(crate) not_before_unix_ms: Option<u64>,
    pub(crate) not_after_unix_ms: Option<u64>,
}

impl NamedKey {
    pub(crate) fn is_active(&self, at_unix_ms: u64) -> bool {
        self.not_before_unix_ms.is_none_or(|from| at_unix_ms >= from)
            && self.not_after_unix_ms.is_none_or(|until| at_unix_ms <= until)
    }
}

impl Setup {
    /// How its deliveries come unless somebody says otherwise.
    pub(crate) fn method(&self) -> &'static str {
        self.scheme.methods().first().copied().unwrap_or("POST")
    }

    /// The keys that count at a moment.
    pub(crate) fn active(&self, at_unix_ms: u64) -> Vec<ActiveKey<'_>> {
        let keys = self.keys.iter().enumerate().filter(|(_, named)| named.is_active(at_unix_ms));
        keys.map(|(index, named)| ActiveKey { index, key: &named.key }).collect()
    }

    /// The scheme by name and the secret by reference, or both as an endpoint of the configuration has them.
    pub(crate) fn of(args: &SchemeAndKey, shell: &mut Shell<'_>) -> Outcome<Self> {
        if let Some(endpoint) = &args.endpoint {
            return Configured::load(&args.config, shell)?.setup(endpoint);
        }
        let (Some(name), Some(reference)) = (&args.scheme, &args.secret) else {
            return Err(Failure::usage("which scheme, and which secret?", "give --scheme and --secret, or --endpoint"));
        };
        let scheme = match &args.tenant {
            None => preset(name)?,
            Some(tenant) => Configured::load(&args.config, shell)?.scheme(tenant, name)?,
        };
        let resolved = reference.resolve(shell.environment, shell.stdin)?;
        if let Some(warning) = resolved.warning {
            shell.out.remark(format_args!("the secret {warning}"));
        }
        let key = named_key(&scheme, "given", resolved.secret, None, None)?;
        Ok(Self { scheme, keys: vec![key], url: None })
    }
}

pub(crate) fn named_key(
    scheme: &Scheme,
    name: &str,
    secret: Secret,
    not_before_unix_ms: Option<u64>,
    not_after_unix_ms: Option<u64>,
) -> Outcome<NamedKey> {
    let key = scheme.key(&secret).map_err(|fault| {
        Failure::failed(
            format_args!("the secret \"{name}\" makes no key for {}: {fault}", scheme.name()),
            format_args!("`tidegate schemes show {}` says how its secrets are written", scheme.name()),
        )
    })?;
    Ok(NamedKey { name: name.to_owned(), key, secret, not_before_unix_ms, not_after_unix_ms })
}

pub(crate) fn presets() -> Outcome<Presets> {
    Presets::load().map_err(|fault| Failure::failed(fault, "this is a defect of this build: please report it"))
}

/// A scheme that comes with Tidegate.
pub(crate) fn preset(name: &str) -> Outcome<Arc<Scheme>> {
    presets()?.get(name).cloned().ok_or_else(|| unknown(name))
}

pub(crate) fn unknown(name: &str) -> Failure {
    Failure::failed(
        format_args!("there is no scheme \"{}\"", Untrusted::new(name.as_bytes())),
        "`tidegate schemes list` names them; one that a tenant declares needs --config and --tenant",
    )
}

/// Does the provider sign the URL that it posts to?
pub(crate) fn signs_url(declaration: &SchemeDeclaration) -> bool {
    let claims = declaration.claims.iter().map(|claim| &claim.content);
    let contents = declaration.cases.iter().map(|case| &case.content).chain([&declaration.content]).chain(claims);
    let signed = ["{url", "{target}", "{path}", "{sorted_query}", "{canonical_query}"];
    contents.into_iter().any(|content| signed.iter().any(|piece| content.contains(piece)))
}
