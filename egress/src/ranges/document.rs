//! What is published: the document, and the two forms that firewalls and geolocators read.
//!
//! The same book gives the same bytes, in every build and on every node: signatures and validators of caches hang on
//! them. Whoever changes a key here makes another `schemaVersion`.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::book::Book;
use super::change::At;
use super::prefix::Prefix;
use super::range::{Range, State};
use super::words::Reason;

/// The form that this build writes.
pub(super) const SCHEMA_VERSION: u32 = 1;

/// `egress-ranges.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    /// 1.
    pub schema_version: u32,
    /// Which book it is a version of: versions are only compared within one.
    pub book: String,
    /// Version, from 1.
    pub serial: u64,
    /// When this version was made.
    pub generated: At,
    /// After this it is too old to go by.
    pub valid_until: At,
    /// SHA-256 of the version before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_sha256: Option<String>,
    /// Ties the lines of the book together; of no use outside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
    /// The key that it is signed with, `ed25519:…`.
    pub public_key: String,
    /// From announcing to activating, as of now.
    pub notice_seconds: u64,
    /// From draining to retiring, as of now.
    pub drain_seconds: u64,
    /// Where every version is, relative to this document.
    pub versions: String,
    /// Every range there is or was.
    pub prefixes: Vec<Range>,
    /// Every change there was.
    pub history: Vec<Past>,
}

/// One change, as the document shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    /// The version that it made.
    pub serial: u64,
    /// When.
    pub date: At,
    /// `announce`, `activate`, `drain`, `retire`, `withdraw` or `renew`.
    pub change: String,
    /// Of which range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<Prefix>,
    /// Whether a notice was not waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
}

impl Document {
    /// Of the last version of a book that has one; of an empty book, nothing that anybody publishes.
    pub fn of(book: &Book) -> Self {
        let last = book.last();
        let generated = last.map_or_else(|| At::of_unix_ms(0), |last| last.at);
        let before = book.entries().len().checked_sub(2).and_then(|at| book.entries().get(at));
        let history = book.entries().iter().map(|entry| Past {
            serial: entry.serial,
            date: entry.at,
            change: entry.what.word().to_owned(),
            prefix: entry.what.prefix(),
            forced: entry.forced,
            reason: entry.reason.clone(),
        });
        Self {
            schema_version: SCHEMA_VERSION,
            book: book.id().to_owned(),
            serial: book.serial(),
            generated,
            valid_until: book.valid_until().unwrap_or(generated),
            previous_sha256: before.map(|before| before.sha256.clone()),
            chain: last.and_then(|last| last.previous.clone()),
            public_key: last.map_or_else(String::new, |last| last.key.clone()),
            notice_seconds: last.map_or(0, |last| last.policy.notice_seconds),
            drain_seconds: last.map_or(0, |last| last.policy.drain_seconds),
            versions: "egress-ranges/{serial}.json".to_owned(),
            prefixes: book.ranges().cloned().collect(),
            history: history.collect(),
        }
    }

    /// The bytes that are signed and served.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text.into_bytes()
    }

    /// `egress-ranges.txt`: everything to allow, a line each. What is announced is among it: who allows it in time is
    /// not surprised by the day of the change.
    pub fn to_text(&self) -> String {
        let Self { serial, generated, valid_until, .. } = self;
        let mut text = format!(
            "# Addresses that calls leave from: version {serial} of {generated}, valid until {valid_until}.\n\
             # Allow every line that is no comment. egress-ranges.json says more, and is signed.\n"
        );
        for state in [State::Active, State::Draining, State::Announced] {
            for range in self.prefixes.iter().filter(|range| range.state == state) {
                let until = range.retire_from.unwrap_or(range.active_from);
                let said = match state {
                    State::Draining => format!("# draining, ours until {until} at least\n"),
                    State::Announced => format!("# announced, not used before {}\n", range.active_from),
                    State::Active | State::Retired => String::new(),
                };
                let written = writeln!(text, "{said}{}", range.prefix);
                written.unwrap_or_default();
            }
        }
        text
    }

    /// `egress-ranges-geofeed.csv` (RFC 8805): every range that is not retired and has a country.
    pub fn to_geofeed(&self) -> String {
        let mut text = format!("# RFC 8805, version {} of {}\n", self.serial, self.generated);
        for range in self.prefixes.iter().filter(|range| range.state != State::Retired) {
            let Some(country) = &range.country else { continue };
            let region = range.region.as_ref().map_or("", |region| region.as_str());
            let city = range.city.as_ref().map_or("", |city| city.as_str());
            // The last field is the postal code, which nobody should use (§2.1.1.5).
            writeln!(text, "{},{country},{region},{city},", range.prefix).unwrap_or_default();
        }
        text
    }
}
