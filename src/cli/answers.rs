//! What providers hear, what a refusal costs with them, and how they ask whether an endpoint is one: in words.

use std::fmt::Write;

use config::scheme::{Answer, AnswerBody, Handshake, HandshakeKind, Redelivery, Reply};

/// What a delivery that was taken is answered.
pub(super) fn answered(answer: &Answer) -> String {
    let body = match answer.body {
        AnswerBody::Event => "with the event's ids as JSON".to_owned(),
        AnswerBody::Empty => "without a body".to_owned(),
        AnswerBody::Text => format!("with {} as {}", answer.text, answer.content_type.as_str()),
    };
    let bare = if answer.bare_refusals { "; refusals have no body either" } else { "" };
    format!("{} {body}{bare}", answer.status)
}

/// What a 503 costs with this provider.
pub(super) fn cost(ways: &Redelivery) -> String {
    let mut text = if ways.automatic {
        let often = ways.attempts.map(|attempts| format!(" {attempts} times")).unwrap_or_default();
        let long = ways.lasts.map(|lasts| format!(" for {lasts}")).unwrap_or_default();
        let after_429 = if ways.after_429 { "also after a 429" } else { "but not after a 429" };
        format!("time: it is sent again{often}{long}, {after_429}")
    } else {
        "the delivery: it is not sent again by itself".to_owned()
    };
    if let Some(timeout) = ways.timeout {
        // Writing into a string does not fail.
        write!(text, "; so does an answer after {timeout}").ok();
    }
    for words in [&ways.gives_up, &ways.ask, &ways.note].into_iter().filter(|words| !words.is_empty()) {
        write!(text, "; {words}").ok();
    }
    text
}

/// How the provider asks, and what it hears.
pub(super) fn handshake(handshake: &Handshake) -> String {
    let mut text = handshake.method.as_str().to_owned();
    let conditions: Vec<_> = handshake.when.iter().map(ToString::to_string).collect();
    if !conditions.is_empty() {
        write!(text, " {}", conditions.join(" and ")).ok();
    }
    if handshake.verified {
        text.push_str(", verified as a delivery");
    }
    if let Some(token) = &handshake.token {
        write!(text, ", with handshake.token as {token}").ok();
    }
    if handshake.digest.as_ref().is_some_and(|digest| digest.content.contains("{token}")) {
        text.push_str(", with handshake.token in the digest");
    }
    let what = match handshake.kind {
        HandshakeKind::Echo => "its challenge",
        HandshakeKind::Digest => "a digest of its challenge",
        HandshakeKind::Fixed => "always the same",
        HandshakeKind::Origin => "permission to deliver",
        HandshakeKind::Adopt => "its secret, which is kept as the endpoint's",
    };
    let Reply { status, text: plain, json, document, header, .. } = &handshake.reply;
    let form = match (plain, json.is_empty(), document, header) {
        (Some(_), ..) => ", as text",
        (None, false, ..) | (None, true, Some(_), _) => ", as JSON",
        (None, true, None, Some(_)) => ", in a header",
        (None, true, None, None) => "",
    };
    write!(text, ": {status} and {what}{form}").ok();
    text
}

#[cfg(test)]
mod tests {
    use super::super::testing::run;

    #[test]
    fn a_row_says_what_its_provider_asks_and_hears() {
        let shown = |scheme: &str| run(&["schemes", "show", scheme]).answer;
        let has = |scheme: &str, line: &str| assert!(shown(scheme).contains(line), "{}", shown(scheme));
        has(
            "meta",
            "GET query:hub.mode=subscribe, with handshake.token as query:hub.verify_token: 200 and its challenge, as text\n",
        );
        has(
            "zoom",
            "POST json:/event=endpoint.url_validation, verified as a delivery: 200 and a digest of its challenge, as JSON\n",
        );
        has("trello", "HEAD: 200 and always the same\n");
        has("azure-event-grid", "OPTIONS: 200 and permission to deliver\n");
        has("xero", "200 without a body; refusals have no body either\n");
        has("twilio", "200 with <Response/> as text/xml; charset=utf-8\n");
        has(
            "github",
            "the delivery: it is not sent again by itself; so does an answer after 10s; redeliver it from the webhook's page, or by API\n",
        );
        has(
            "shopify",
            "time: it is sent again 8 times for 4h, also after a 429; so does an answer after 5s; removes the subscription after 8 failures in a row\n",
        );
        assert!(!shown("github").contains("handshake"));
    }
}
