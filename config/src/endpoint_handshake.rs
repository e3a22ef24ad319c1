//! What an endpoint's handshakes need beside its secrets.

use domain::Secret;

use crate::document::Document;
use crate::form::{Located, Maybe, Placed, Text, settings, text};
use crate::secret::check_name;
use crate::tenant_file::{Resolve, reference, resolve_one};

/// A name of an account is printable ASCII without white space, and bounded: it stands in answers.
const ACCOUNT_BYTES_MAX: usize = 128;

settings! {
    /// What its handshakes need beside its secrets, where its scheme has such (`tidegate schemes show`).
    pub(crate) struct HandshakeTable {
        /// Reference to what the provider repeats when it asks: Meta's verify token, eBay's verification token. No delivery is verified with it.
        token: Option<Located<String>> = None, Maybe(Placed(reference())), live,
            "A key of its own: whoever learns it can confirm an endpoint and sign nothing.";
        /// What an answer names the account by, such as Braintree's public key. It is no secret.
        account: Option<String> = None, Maybe(account()), live,
            "Few providers ask for one.";
        /// Name of one of its secrets, `secret:NAME`, that the provider makes and sends when it asks (Asana): while there is no such file, the endpoint takes its first one from the provider.
        adopts: Option<String> = None, Maybe(secret_name()), live,
            "Whoever knows the endpoint and asks first sets its secret: take the key out when it has one.";
    }
}

const fn account() -> Text<String> {
    text(
        "name of an account",
        "integration_public_key",
        |text| {
            let fits =
                (1..=ACCOUNT_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
            if fits { Ok(text.to_owned()) } else { Err("must be 1 to 128 printable characters without spaces".into()) }
        },
        String::clone,
    )
}

const fn secret_name() -> Text<String> {
    text(
        "name of a secret",
        "asana",
        |text| {
            check_name(text).map(|()| text.to_owned()).map_err(|_| {
            "is the NAME of `secret:NAME`: 1 to 128 letters, digits, '.', '-' and '_', and no dot at its beginning".into()
        })
        },
        String::clone,
    )
}

/// What an endpoint's handshakes need beside its secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct EndpointHandshake {
    /// What the provider repeats when it asks.
    pub token: Option<Secret>,
    /// What an answer names the account by.
    pub account: Option<Box<str>>,
    /// Which of its secrets the provider makes.
    pub adopts: Option<Box<str>>,
}

pub(crate) fn build(
    document: &mut Document<'_>,
    table: HandshakeTable,
    enabled: bool,
    resolve: &mut Resolve<'_>,
) -> Option<Box<EndpointHandshake>> {
    document.within("handshake", |document| {
        let token = table.token.and_then(|reference| {
            document.within("token", |document| resolve_one(document, &reference, enabled, resolve))
        });
        // An empty one stands for one that cannot be used: nobody is to prove himself by saying nothing.
        let token = token.filter(|token| !token.is_empty());
        let (account, adopts) = (table.account.map(Into::into), table.adopts.map(Into::into));
        let any = token.is_some() || account.is_some() || adopts.is_some();
        any.then(|| Box::new(EndpointHandshake { token, account, adopts }))
    })
}
