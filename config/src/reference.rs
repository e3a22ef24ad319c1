//! `docs/configuration.md`: every key with its type, default and the reason for it, from the rows that the loader
//! reads by.

use std::fmt::Write;

use crate::egress::RuleTable;
use crate::form::{Effect, Row, Settings};
use crate::settings::Appliance;
use crate::tenant_file::TenantTable;

const INTRODUCTION: &str = "\
# Configuration

<!-- Made from the tables in config/src; `TIDEGATE_BLESS=1 cargo test -p tidegate-config` writes it anew. -->

Two kinds of file, both TOML. The **appliance's file** (`tidegate run --config tidegate.toml`) is one unit: it is good,
or the one before stays in force. Each **tenant's file** (`<tenants.directory>/<tenant>.toml`) is a unit of its own: a
faulty one keeps that tenant's last good version and touches nobody else.

A third kind says what is known of providers: [connectors.md](connectors.md).

- `tidegate check --config tidegate.toml` says everything that is wrong at once, with file and line.
- Unknown keys are refused. A size has a unit (`\"25MiB\"`, also `\"25MB\"`), a duration too (`\"500ms\"`, `\"10s\"`, `\"1h30m\"`,
  `\"30d\"`), a rate is `\"100/s burst 200\"`, of bytes `\"10MiB/s burst 50MiB\"`, or `\"unlimited\"`. Without a burst it is one
  second's worth.
- Relative paths start at the directory of the file that they stand in.
- Files are read again on `SIGHUP` and when they change: at once where the kernel tells of it, and within thirty seconds
  where it does not, as of a file that a link leads to and of a link above the directory that is switched; within ten on
  a network file system. A large directory is looked at less often, for at most a fiftieth of a core.
- What cannot be read for a reason that passes, such as too many open files, stays as it was and is read again: after a
  second, then ever less often, at least once a minute.
- Keys marked *restart* are read once, at start: a reload that changes one says so and goes on with the old value.
- Editors complete and check both files with [the schemas](schema/): put
  `#:schema <path>/tidegate.schema.json` into the first line.

## Secrets

Secrets are references, never values.

| reference | where | means |
|---|---|---|
| `secret:NAME` | tenants' files | the file `<tenants.directory>/<tenant>.secrets/NAME`; no link may lead out of that directory |
| `env:NAME` | command line; the appliance's file; tenants' files where `tenants.allow_env` allows the name | an environment variable of the appliance |
| `file:PATH` | command line; the appliance's file | a file |
| `systemd-credential:NAME` | command line; the appliance's file | a credential that the unit loads with `LoadCredential=` |

One newline at the end of a file is taken off. A file that group or others can read is a warning: `chmod 600` it. A
secret that changes is picked up as a file that changes is, also while its tenant's file is faulty: what is in force is
the last good version of the file with the secrets as they are now. So a secret whose file is taken away or emptied, or
that `tenants.allow_env` does not allow any more, verifies nothing from then on, and a new value counts.

## When a file is faulty

| what | what happens |
|---|---|
| the appliance's file, at a reload | the settings before stay in force |
| the appliance's file, at start | Tidegate does not start, and says everything that is wrong |
| a tenant's file | its last good version is used, from `tenants.state_directory`, with its secrets as they are now |
| a tenant's file without a last good version | its endpoints answer 503, never 404, as far as they can be made out |
| a secret that the tenant's file names cannot be used: its file is taken away, is empty or no file, or holds no key of the scheme | it is not used any more, and neither is its value before; an endpoint that has no other answers 503, and so does a connection whose credential it is |
| a connector's manifest | the settings before stay in force, connectors included |
| a file or a secret cannot be read for now | what was in force stays until it can be |
| two tenants' files with the same endpoint id or alias | who had it keeps it; the other file is the faulty one |
| the tenants' directory cannot be listed | every tenant stays as it was, with the secrets that it had |
| the tenants' directory has no tenant's file left, as where a volume is not mounted | every tenant stays as it was, with the secrets that it had; to remove the last one, take the endpoints out of its file |
| the tenants' directory has too many files or entries | who was there stays; the rest is not read |
| a tenant's file is taken away | the tenant is removed, once the file was missing for a second |

## When an endpoint moves to another tenant

An endpoint's id may be given to another tenant's file, or a tenant may be renamed: new deliveries are the new tenant's. What
was committed before stays the old tenant's for its whole age, under the same id, and a read of one tenant's endpoint ends at
the first record that is another's: `events list` and `export` with `--tenant NEW --endpoint ID` fail there, and the
appliance's log names the place, since nothing else would show an index that has gone wrong. `--since` the move reads what is
the new tenant's, `--until` the move what is the old one's, and `--all-tenants --endpoint ID` both. An endpoint with a new id
has none of this.

## How ages are counted

`log.retention` and `holding.age` are promises, so they go by a clock that is believed and not by the one that the machine
shows: a step forward of more than five minutes counts when it has lasted for six hours, also over a restart, and when it does,
it makes nothing older that was there before. What came while a clock said 2020 has its whole age from when it came, also where
the clock was wrong for a moment only; what lies in one segment with it can be kept longer. Nothing tells the time for which the
appliance was off from a clock that was behind: a stop of more than five minutes does not count towards the ages of what lies
before it, which is kept that much longer.
";

const RULES: &str = "
## Rules

An entry of an `allow` or a `deny` list is a host (`\"api.example.com\"`), a zone (`\"*.example.com\"`: every name within it
and not the zone itself), an address, either of them with a port (`\"api.example.com:8443\"`), or a table:

```toml
allow = [
  \"api.stripe.com\",
  { host = \"api.example.com\", ports = [443, 8443], methods = [\"GET\"], paths = [\"/v1/\"], mode = \"report\", name = \"example\" },
]
```

A `deny` wins over every `allow`, whoever wrote it. Addresses are judged apart from names, and no rule opens a private or a
metadata address: only `[[egress.opening]]` of the appliance's file names an internal destination.

";

/// The text of `docs/configuration.md`.
pub fn reference_markdown() -> String {
    let mut out = INTRODUCTION.to_owned();
    out.push_str("\n## The appliance's file\n");
    for row in Appliance::rows() {
        table(&mut out, row.name, &row, 3);
    }
    out.push_str("\n## A tenant's file\n");
    section(&mut out, &TenantTable::rows(), 3);
    out.push_str(RULES);
    keys(&mut out, &RuleTable::rows(), false);
    out
}

/// Only a table whose keys are listed gets a section.
fn is_table(row: &Row) -> bool {
    !row.rows.is_empty() || row.kind.ends_with("scheme")
}

/// The keys of a file of its own, and a section for each of its tables.
pub(crate) fn section(out: &mut String, rows: &[Row], depth: usize) {
    out.push('\n');
    keys(out, rows, false);
    for row in rows.iter().filter(|row| is_table(row)) {
        table(out, row.name, row, depth);
    }
}

fn table(out: &mut String, path: &str, row: &Row, depth: usize) {
    let name = if row.list { format!("[[{path}]]") } else { format!("[{path}]") };
    // Writing to a string cannot fail.
    write!(out, "\n{} `{name}`\n\n{}\n", "#".repeat(depth), row.meaning).unwrap_or_default();
    if row.rows.is_empty() {
        out.push_str("\n[schemes.md](schemes.md) explains every key with an example.\n");
        return;
    }
    if row.rows.iter().any(|inner| !is_table(inner) || !inner.why.is_empty()) {
        out.push('\n');
        keys(out, &row.rows, true);
    }
    for inner in row.rows.iter().filter(|inner| is_table(inner)) {
        table(out, &format!("{path}.{}", inner.name), inner, depth);
    }
}

fn keys(out: &mut String, rows: &[Row], effects: bool) {
    let restarts = effects && rows.iter().any(|row| row.effect == Effect::Restart);
    let (title, line) = if restarts { (" takes effect |", "---|") } else { ("", "") };
    writeln!(out, "| key | type | default |{title} meaning, and why this default |\n|---|---|---|{line}---|")
        .unwrap_or_default();
    for row in rows.iter().filter(|row| !is_table(row) || !row.why.is_empty()) {
        let default = match row.default.as_str() {
            "required" => "**required**".to_owned(),
            "none" => "none".to_owned(),
            text if text.starts_with(|c: char| c.is_ascii_lowercase() || c == '`') && text.contains(' ') => {
                text.to_owned()
            }
            text if text.chars().all(|c| c == '[' || c == ']' || c == ',' || c == ' ') && text.len() > 2 => {
                "see below".to_owned()
            }
            text => format!("`{text}`"),
        };
        let effect = match (restarts, row.effect) {
            (false, _) => "",
            (true, Effect::Live) => " live |",
            (true, Effect::Restart) => " restart |",
        };
        let (name, kind, meaning) = (row.name, escaped(&row.kind), escaped(&row.meaning));
        let why = if row.why.is_empty() { String::new() } else { format!(" *{}*", escaped(row.why)) };
        writeln!(out, "| `{name}` | {kind} | {} |{effect} {meaning}{why} |", escaped(&default)).unwrap_or_default();
    }
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}
