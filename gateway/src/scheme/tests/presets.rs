//! What holds of every row.

use config::scheme::{Algorithm, Evidence};

use super::{PRESETS, preset};

#[test]
fn every_known_answer_comes_out() {
    for scheme in PRESETS.iter() {
        let answers = scheme.self_test().unwrap_or_else(|faults| panic!("{faults:#?}"));
        assert!(answers >= 1, "{} has no known answer", scheme.name());
        let accepting = scheme.declaration().known_answers.iter().filter(|a| a.fault.is_none()).count();
        assert!(accepting >= 1, "{} has no known answer that verifies", scheme.name());
    }
}

#[test]
fn the_row_says_where_it_is_from() {
    for scheme in PRESETS.iter() {
        let row = scheme.declaration();
        assert!(!row.title.is_empty() && !row.source.is_empty(), "{}", row.name);
        assert!(row.checked.parse::<jiff::civil::Date>().is_ok(), "{}: {}", row.name, row.checked);
    }
}

#[test]
fn the_required_presets_are_there() {
    for name in [
        "github",
        "stripe",
        "slack",
        "shopify",
        "standard-webhooks",
        "svix",
        "twilio",
        "linear",
        "gitlab",
        "gitlab-signing-token",
        "paddle",
        "zoom",
        "twitch",
        "square",
        "typeform",
        "hubspot-v3",
        "box",
        "bitbucket",
        "intercom",
        "zendesk",
        "calendly",
        "docusign",
        "dropbox",
        "x",
        "notion",
        "xero",
        "woocommerce",
        "vercel",
        "circleci",
        "pagerduty",
        "sentry",
        "razorpay",
        "mux",
        "front",
        "discord",
        "telnyx",
        "sendgrid",
        "wise",
        "netlify",
        "vonage",
        "messagebird",
        "monday",
        "adyen",
        "mailgun",
        "braintree",
        "contentful",
        "plivo",
    ] {
        preset(name);
    }
    assert!(PRESETS.len() >= 190, "{}", PRESETS.len());
    let published = PRESETS.iter().filter(|scheme| {
        scheme.declaration().known_answers.iter().any(|answer| answer.evidence == Evidence::Published)
    });
    assert!(published.count() >= 20);
}

#[test]
fn a_published_answer_says_where_it_is_published() {
    for scheme in PRESETS.iter() {
        let row = scheme.declaration();
        for answer in row.known_answers.iter().filter(|answer| answer.evidence == Evidence::Published) {
            // Without one of its own, it is where the row was read: with the provider, and not in somebody's catalogue.
            let source = if answer.source.is_empty() { &row.source } else { &answer.source };
            assert!(!source.is_empty() && !source.contains("catalogue"), "{}: published where?", row.name);
        }
    }
}

#[test]
fn a_token_that_covers_no_body_is_not_stored_either() {
    for name in ["monday", "jira-connect"] {
        assert!(!preset(name).stores(b"Authorization") && !preset(name).judges_stored(), "{name}");
    }
    for name in ["vonage", "messagebird", "netlify"] {
        assert!(preset(name).judges_stored(), "{name}");
    }
    assert!(preset("vonage").stores(b"authorization"));
}

#[test]
fn what_is_not_signed_is_not_called_so() {
    for (name, id_signed, covers_body) in [
        ("github", false, true),
        ("shopify", false, true),
        ("stripe", true, true),
        ("standard-webhooks", true, true),
        ("twitch", true, true),
        ("box", false, true),
        ("linear", false, true),
        ("notion", true, true),
        ("gitlab", false, false),
        ("telegram", false, false),
        ("postmark", false, false),
        ("mercado-pago", false, false),
        ("twilio", false, true),
        ("discord", true, true),
        ("wise", false, true),
        ("vonage", true, true),
        ("messagebird", true, true),
        ("netlify", false, true),
        ("monday", false, false),
        ("jira-connect", false, false),
        ("adyen", false, false),
        ("mailgun", true, false),
        ("braintree", false, true),
        ("contentful", false, true),
        ("plivo", false, true),
        ("plivo-v2", false, false),
    ] {
        let scheme = preset(name);
        assert_eq!(scheme.delivery_id_signed(), id_signed, "{name}");
        assert_eq!(scheme.covers_body(), covers_body, "{name}");
    }
}

#[test]
fn tokens_and_passwords_are_never_stored() {
    for scheme in PRESETS.iter() {
        let row = scheme.declaration();
        if !matches!(row.algorithm, Algorithm::Token | Algorithm::Basic) {
            continue;
        }
        match &row.signature.header {
            Some(name) => assert_eq!(*scheme.strips()[0], *name.to_ascii_lowercase()),
            None => assert!(row.signature.from.is_some()),
        }
    }
}

#[test]
fn who_does_not_send_again_is_not_told_to() {
    for name in ["github", "gitlab", "gitlab-signing-token", "twilio", "hubspot-v3", "sentry"] {
        assert!(!preset(name).redelivers(), "{name}");
    }
    for name in ["stripe", "slack", "shopify", "square", "svix", "zoom", "sanity"] {
        assert!(preset(name).redelivers(), "{name}");
    }
    assert_eq!(preset("github").success_status(), 202);
    assert_eq!(preset("zoom").success_status(), 200);
}
