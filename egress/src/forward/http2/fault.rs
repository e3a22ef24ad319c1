//! What an error of HTTP/2 is called, and whether it is certain that the request was not looked at.

use outbound::ErrorType;

use crate::Refusal;
use crate::forward::body::BodyFault;

/// What ended a stream.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) fault: BodyFault,
    /// The peer says that it did nothing with the request (RFC 9113, 8.7).
    pub(super) is_unprocessed: bool,
}

/// Of an error of a stream, or of the connection below it. It says nothing that a peer wrote: what comes with a GOAWAY
/// is text of theirs.
pub(super) fn of(error: &h2::Error) -> Ended {
    let by_peer = error.is_remote();
    if let Some(io) = error.get_io() {
        return ended(false, ErrorType::ConnectionTerminated, "the connection ended", &io.kind().to_string());
    }
    let Some(reason) = error.reason() else {
        let detail = "the request cannot be said in HTTP/2";
        return Ended { fault: BodyFault::new(Refusal::Internal, detail), is_unprocessed: false };
    };
    let name = format!("{reason:?}");
    if error.is_go_away() && by_peer {
        // Streams up to the last one that the GOAWAY names go on; those above it get this error, and no others do.
        return ended(true, ErrorType::ConnectionTerminated, "the destination closes and did not take it", &name);
    }
    if error.is_reset() && by_peer {
        let is_refused = reason == h2::Reason::REFUSED_STREAM;
        return ended(is_refused, ErrorType::HttpResponseIncomplete, "the destination reset the stream", &name);
    }
    // We ended it, for what the peer did.
    let detail = format!("the destination does not speak HTTP/2 as it should: {name}");
    Ended { fault: BodyFault::new(Refusal::ResponseRefused, detail), is_unprocessed: false }
}

fn ended(is_unprocessed: bool, error_type: ErrorType, what: &str, why: &str) -> Ended {
    let detail = format!("{what}: {why}").into();
    Ended { fault: BodyFault { refusal: Refusal::ResponseIncomplete, error_type, detail }, is_unprocessed }
}
