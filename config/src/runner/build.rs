//! From the tables of a tenant's file to what it says of its runs.

use std::collections::BTreeSet;

use super::tables::RunnerTable;
use super::tenant::{RunnerToken, TenantRunner};
use crate::document::Document;
use crate::form::Located;
use crate::tenant_file::Rules;

/// Nothing where the file says nothing of runs.
pub(crate) fn build(
    document: &mut Document<'_>,
    table: Option<RunnerTable>,
    rules: &Rules,
) -> Option<Box<TenantRunner>> {
    let table = table?;
    let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
    let mut tokens = Vec::with_capacity(table.token.len());
    let mut tier = None;
    document.within("runner", |document| {
        tier = table.tier.map(|tier| known_tier(document, tier, rules));
        document.within("token", |document| {
            for Located { span, index, value: token } in table.token {
                document.within_index(index, |document| {
                    if !names.insert(token.name.clone()) && !token.name.is_empty() {
                        let message = format!("is the second token named \"{}\"; give each its own name", token.name);
                        document.fault(span.clone(), message);
                    }
                    let Some(hash) = token.hash else { return };
                    if !hashes.insert(hash) {
                        let message = "is the digest of another token of this file; every token is another one";
                        document.within("hash", |document| document.fault(span.clone(), message));
                    }
                    tokens.push(RunnerToken {
                        name: token.name.into(),
                        hash,
                        scope: token.scope,
                        not_after_unix_ms: token.not_after,
                        line: document.line(span.start),
                    });
                });
            }
        });
    });
    Some(Box::new(TenantRunner { tokens: tokens.into(), tier, concurrency: table.concurrency }))
}

fn known_tier(document: &mut Document<'_>, tier: Located<String>, rules: &Rules) -> Box<str> {
    if let Some(known) = rules.tiers.as_ref().filter(|known| !known.contains(tier.value.as_str())) {
        let known = known.iter().map(|name| &**name).collect::<Vec<_>>().join(", ");
        let message =
            format!("\"{}\" is no tier; known here: {known} (runner.tier in the appliance's file)", tier.value);
        document.within("tier", |document| document.fault(tier.span.clone(), message));
    }
    tier.value.into()
}
