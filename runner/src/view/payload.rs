//! Inputs and outputs as they are shown: what is not whole says so, with the length and the digest of the original.

use bytes::Bytes;
use data_encoding::{BASE64, HEXLOWER};
use domain::TenantId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ledger::payloads::{Fetched, PayloadStore};
use crate::ledger::{Kept, Payload};

/// An input or an output. One of `value`, `text` and `base64` has what is shown; none, where nothing is left or shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PayloadView {
    /// Of the original.
    pub bytes: u64,
    /// Of the original: `blake3:` and 64 hexadecimal digits.
    pub digest: String,
    /// The original was longer than anybody has read: `bytes` and `digest` are of as much of it as was.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub unfinished: bool,
    /// Not all of it is shown.
    pub truncated: bool,
    /// Why not: `too-large` to be kept whole, `expired`, `not-shown` here since it is long, or `unavailable` just now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub because: Option<String>,
    /// Whole, and JSON.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<Value>,
    /// Text, or as much of it as is shown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub text: Option<String>,
    /// Bytes that are no text, or as many as are shown.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base64: Option<String>,
}

/// What one view may still show, over all of its payloads.
#[derive(Debug)]
pub(super) struct Budget {
    /// Of one.
    pub(super) each_max: usize,
    pub(super) left: usize,
}

/// Shows a payload. What is stored elsewhere is fetched, if it is short enough to be shown whole.
pub(super) async fn show(
    payload: &Payload,
    tenant: &TenantId,
    store: Option<&dyn PayloadStore>,
    budget: &mut Budget,
) -> PayloadView {
    let room = budget.each_max.min(budget.left);
    let (bytes, because) = match &payload.kept {
        Kept::Inline(bytes) => (bytes.clone(), None),
        Kept::Truncated(bytes) | Kept::Beginning(bytes) => (bytes.clone(), Some("too-large")),
        Kept::Expired => (Bytes::new(), Some("expired")),
        Kept::Stored if payload.bytes > room as u64 => (Bytes::new(), Some("not-shown")),
        Kept::Stored => fetched(payload, tenant, store).await,
    };
    let shown = bytes.slice(..bytes.len().min(room));
    budget.left -= shown.len();
    let because = because.or_else(|| (shown.len() < bytes.len()).then_some("not-shown"));
    let mut view = PayloadView {
        bytes: payload.bytes,
        digest: format!("blake3:{}", HEXLOWER.encode(&payload.digest)),
        unfinished: matches!(payload.kept, Kept::Beginning(_)),
        truncated: because.is_some(),
        because: because.map(str::to_owned),
        value: None,
        text: None,
        base64: None,
    };
    fill(&mut view, &shown);
    view
}

async fn fetched(
    payload: &Payload,
    tenant: &TenantId,
    store: Option<&dyn PayloadStore>,
) -> (Bytes, Option<&'static str>) {
    let Some(store) = store else { return (Bytes::new(), Some("not-shown")) };
    match store.fetch(tenant.clone(), payload).await {
        Ok(Fetched::Whole(bytes)) => (bytes, None),
        Ok(Fetched::Truncated(bytes)) => (bytes, Some("too-large")),
        Ok(Fetched::Expired) => (Bytes::new(), Some("expired")),
        Err(fault) => {
            tracing::warn!(%tenant, %fault, "a payload cannot be shown");
            (Bytes::new(), Some("unavailable"))
        }
    }
}

fn fill(view: &mut PayloadView, shown: &[u8]) {
    if !view.truncated
        && let Ok(value) = serde_json::from_slice(shown)
    {
        view.value = Some(value);
        return;
    }
    // Cut text may end within a character: that one goes.
    match str::from_utf8(shown) {
        Ok(text) => view.text = (!shown.is_empty() || !view.truncated).then(|| text.to_owned()),
        Err(fault) if view.truncated && fault.error_len().is_none() && fault.valid_up_to() > 0 => {
            view.text = str::from_utf8(&shown[..fault.valid_up_to()]).ok().map(str::to_owned);
        }
        Err(_) => view.base64 = Some(BASE64.encode(shown)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::payloads::{Bounds, PayloadDirectory};

    fn payload(bytes: &[u8], kept: Kept) -> Payload {
        Payload { bytes: bytes.len() as u64, digest: *blake3::hash(bytes).as_bytes(), kept }
    }

    async fn shown(payload: &Payload, each_max: usize) -> PayloadView {
        let mut budget = Budget { each_max, left: 1 << 20 };
        show(payload, &TenantId::parse("acme").unwrap(), None, &mut budget).await
    }

    fn inline(bytes: &[u8]) -> Payload {
        payload(bytes, Kept::Inline(Bytes::copy_from_slice(bytes)))
    }

    #[tokio::test]
    async fn what_is_shown_says_whether_it_is_all() {
        let json = shown(&inline(b"{\"a\":[1,\"\\u001b\"]}"), 100).await;
        assert_eq!((json.truncated, json.value), (false, Some(serde_json::json!({"a": [1, "\u{1b}"]}))));
        let cut = shown(&inline(b"{\"a\":[1,2,3]}"), 6).await;
        assert_eq!(
            (cut.truncated, cut.because.as_deref(), cut.text.as_deref()),
            (true, Some("not-shown"), Some("{\"a\":["))
        );
        assert_eq!((cut.bytes, cut.digest.len()), (13, 7 + 64));
        let within = shown(&inline("aä".as_bytes()), 2).await;
        assert_eq!((within.truncated, within.text.as_deref()), (true, Some("a")));
        let binary = shown(&inline(b"\xff\xfe\0"), 100).await;
        assert_eq!((binary.truncated, binary.base64.as_deref()), (false, Some("//4A")));
        let empty = shown(&inline(b""), 100).await;
        assert_eq!((empty.truncated, empty.text.as_deref()), (false, Some("")));
        let large = shown(&payload(b"abcdef", Kept::Truncated(Bytes::from_static(b"abc"))), 100).await;
        assert_eq!((large.because.as_deref(), large.text.as_deref(), large.bytes), (Some("too-large"), Some("abc"), 6));
        assert!(!large.unfinished);
        let endless = shown(&payload(b"abcdef", Kept::Beginning(Bytes::from_static(b"abc"))), 100).await;
        assert_eq!((endless.because.as_deref(), endless.unfinished), (Some("too-large"), true));
        // What looks whole in its first bytes is not.
        let number = shown(&payload(b"123", Kept::Truncated(Bytes::from_static(b"12"))), 100).await;
        assert_eq!((number.value, number.text.as_deref()), (None, Some("12")));
        let gone = shown(&payload(b"abc", Kept::Expired), 100).await;
        assert_eq!((gone.truncated, gone.because.as_deref(), gone.text), (true, Some("expired"), None));
        let deep = shown(&inline(&b"[".repeat(100_000)), 1 << 20).await;
        assert_eq!(deep.value, None);
    }

    #[tokio::test]
    async fn all_payloads_together_are_bounded() {
        let mut budget = Budget { each_max: 4, left: 6 };
        let tenant = TenantId::parse("acme").unwrap();
        let mut lengths = Vec::new();
        for _ in 0..3 {
            lengths.push(show(&inline(b"abcd"), &tenant, None, &mut budget).await.text.map_or(0, |text| text.len()));
        }
        assert_eq!(lengths, [4, 2, 0]);
    }

    #[tokio::test]
    async fn what_is_stored_is_fetched() {
        let directory = tempfile::tempdir().unwrap();
        let store = PayloadDirectory::open(directory.path(), domain::ManualClock::at_unix_ms(1)).unwrap();
        let (tenant, other) = (TenantId::parse("acme").unwrap(), TenantId::parse("b").unwrap());
        let bounds = Bounds { inline_bytes_max: 2, ..Bounds::default() };
        let kept = store.keep(tenant.clone(), Bytes::from_static(b"[1,2,3]"), bounds).await.unwrap();
        assert_eq!(kept.kept, Kept::Stored);
        let mut budget = Budget { each_max: 100, left: 1_000 };
        let view = show(&kept, &tenant, Some(&store), &mut budget).await;
        assert_eq!((view.truncated, view.value), (false, Some(serde_json::json!([1, 2, 3]))));
        let view = show(&kept, &other, Some(&store), &mut budget).await;
        assert_eq!((view.truncated, view.value), (true, None), "another tenant has no such payload");
        budget.each_max = 3;
        let view = show(&kept, &tenant, Some(&store), &mut budget).await;
        assert_eq!((view.because.as_deref(), view.bytes), (Some("not-shown"), 7));
    }
}
