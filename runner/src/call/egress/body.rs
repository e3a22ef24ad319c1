//! Reading an answer's body: whole up to a bound, and beyond it only its length and digest.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::time::Instant;

use super::super::Cut;
use super::EgressSettings;
use super::answer::Read;

/// Reads until its end, until this time, or as much as the settings let be read.
///
/// What fails within the part that is kept is an answer that is not whole. What fails beyond it has told all that anybody
/// would keep of it: the answer is cut, and says that its end was not seen.
pub(super) async fn read<B>(mut body: B, settings: &EgressSettings, ends_at: Instant) -> Read
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut kept = BytesMut::new();
    loop {
        let frame = match tokio::time::timeout_at(ends_at, body.frame()).await {
            Err(_) => return Err(("egress-timeout", "the answer did not end in time".to_owned())),
            Ok(None) => return Ok((kept.freeze(), None)),
            Ok(Some(Err(error))) => return Err(("response-incomplete", error.to_string())),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        let room = settings.answer_bytes_max.saturating_sub(kept.len());
        kept.extend_from_slice(data.get(..data.len().min(room)).unwrap_or_default());
        if let Some(beyond) = data.get(room..).filter(|beyond| !beyond.is_empty()) {
            let cut = count(body, &kept, beyond, settings, ends_at).await;
            return Ok((kept.freeze(), Some(cut)));
        }
    }
}

/// Goes through the rest.
async fn count<B>(mut body: B, kept: &[u8], beyond: &[u8], settings: &EgressSettings, ends_at: Instant) -> Cut
where
    B: Body<Data = Bytes> + Unpin,
{
    let ends_at = ends_at.min(Instant::now() + settings.beyond_for);
    let mut hasher = blake3::Hasher::new();
    hasher.update(kept).update(beyond);
    let is_whole = loop {
        if hasher.count() > settings.read_bytes_max {
            break false;
        }
        match tokio::time::timeout_at(ends_at, body.frame()).await {
            Ok(None) => break true,
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data() {
                    hasher.update(&data);
                }
            }
            Ok(Some(Err(_))) | Err(_) => break false,
        }
    };
    Cut { bytes: hasher.count(), digest: *hasher.finalize().as_bytes(), is_whole }
}

#[cfg(test)]
mod tests;
