//! `docs/connectors.md`: what is known of each provider, and where it was read, from the manifests that are shipped.

use std::fmt::Write;

use super::Catalogue;
use super::headers::{REQUEST, RESPONSE};
use super::manifest::{AuthSlot, Manifest, ManifestTable};
use crate::form::Settings;
use crate::reference::section;

const INTRODUCTION: &str = "\
# Connectors

<!-- Made from config/connectors; `TIDEGATE_BLESS=1 cargo test -p tidegate-config` writes it anew. -->

A connector is what all connections to one provider share: its hosts, where its SDKs put their key, which headers travel,
what becomes of redirects. A tenant's `[[connection]]` names one, and is called as `/c/{connection}/…`:

```toml
[[connection]]
id = \"conn_stripe\"
connector = \"stripe\"
base_url = \"https://api.stripe.com\"
credential = \"cred_44\"

[[credential]]
id = \"cred_44\"
kind = \"bearer\"
value = \"secret:stripe\"
```

- The host of `base_url` is one of the connector's hosts. The credential goes to those hosts and nowhere else, on the
  first hop and on every redirect.
- A header travels if the lists below name it, in either direction. All others stay here.
- A provider's hosts are not reached through a tunnel (CONNECT), which would evade all of this, unless its manifest says
  `tunnel = true`, or a rule that allows the host says `methods = [\"CONNECT\"]`.
- A provider that has no connector is called with `http`, or gets a manifest of your own.

## Your own

`connectors.directory` of the appliance's file names a directory of manifests, `NAME.toml` each. One with the name of a
connector that comes with Tidegate takes its place. They are read again when the appliance's file is; while one of them is
faulty, those before stay in force. `tidegate check` says what is wrong, with file and line.

```toml
# connectors/acme-billing.toml
connector = \"acme-billing\"
title = \"Acme's billing system\"
hosts = [\"billing.example.com\"]
correlation_headers = [\"X-Trace-Id\"]

[auth]
slot = \"header\"
header = \"X-Api-Key\"

[headers]
request = [\"X-Account\"]
```
";

/// The text of `docs/connectors.md`.
pub fn connectors_markdown(catalogue: &Catalogue) -> String {
    let mut out = INTRODUCTION.to_owned();
    section(&mut out, &ManifestTable::rows(), 3);
    out.push_str("\n## Headers of every connector\n\n");
    // Writing to a string cannot fail.
    write!(out, "To the provider: {}.\n\nBack to the caller: {}.\n", code(REQUEST), code(RESPONSE)).unwrap_or_default();
    out.push_str("\n## Those that come with Tidegate\n\n");
    out.push_str("| connector | provider | hosts | a grant comes in as | idempotency | named in answers by |\n|---|---|---|---|---|---|\n");
    for manifest in catalogue.manifests() {
        writeln!(
            out,
            "| [`{}`](#{}) | {} | {} | {} | {} | {} |",
            manifest.connector,
            manifest.connector,
            manifest.title,
            hosts(manifest),
            slot(&manifest.auth),
            manifest.idempotency_header.as_deref().map_or_else(|| "none documented".into(), |name| code(&[name])),
            code_or(&manifest.correlation_headers, "none known"),
        )
        .unwrap_or_default();
    }
    catalogue.manifests().for_each(|manifest| describe(&mut out, manifest));
    out
}

fn describe(out: &mut String, manifest: &Manifest) {
    let named = |list: &super::HeaderList| code_or(&list.named().collect::<Vec<_>>(), "the usual ones alone");
    let redirects = match (&manifest.redirects, manifest.redirects.hosts.is_empty()) {
        (redirects, _) if !redirects.follow => "the caller's to follow".to_owned(),
        (redirects, true) => format!("followed within its hosts, {} at most", redirects.max),
        (redirects, false) => {
            let hosts: Vec<_> = redirects.hosts.iter().map(|host| host.value.as_str()).collect();
            format!("followed, {} at most; without the credential also to {}", redirects.max, code(&hosts))
        }
    };
    write!(out, "\n### `{}`\n\n", manifest.connector).unwrap_or_default();
    if !manifest.note.is_empty() {
        write!(out, "{}\n\n", manifest.note).unwrap_or_default();
    }
    write!(
        out,
        "- to the provider: {}\n- back to the caller: {}\n- redirects: {redirects}\n",
        named(&manifest.request_headers),
        named(&manifest.response_headers),
    )
    .unwrap_or_default();
    if !manifest.not_in_sources.is_empty() {
        writeln!(out, "- known from answers and SDKs, not from the sources: {}", code(&manifest.not_in_sources))
            .unwrap_or_default();
    }
    let sources: Vec<_> = manifest.sources.iter().map(|url| format!("<{url}>")).collect();
    if sources.is_empty() {
        return;
    }
    writeln!(out, "- checked {}: {}", manifest.checked, sources.join(", ")).unwrap_or_default();
}

fn hosts(manifest: &Manifest) -> String {
    let hosts: Vec<_> = manifest.hosts.iter().map(|host| host.value.as_str()).collect();
    code_or(&hosts, "that of `base_url`")
}

fn slot(auth: &AuthSlot) -> String {
    match auth {
        AuthSlot::Bearer => "bearer".into(),
        AuthSlot::BasicUser => "user of basic authentication".into(),
        AuthSlot::BasicPassword => "password of basic authentication".into(),
        AuthSlot::Header(name) => format!("header `{name}`"),
        AuthSlot::Query(name) => format!("parameter `{name}`"),
    }
}

fn code(texts: &[impl AsRef<str>]) -> String {
    texts.iter().map(|text| format!("`{}`", text.as_ref())).collect::<Vec<_>>().join(", ")
}

fn code_or(texts: &[impl AsRef<str>], none: &str) -> String {
    if texts.is_empty() { none.to_owned() } else { code(texts) }
}
