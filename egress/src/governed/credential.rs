//! Attaching a credential to one hop.

use async_trait::async_trait;
use config::CredentialKind;
use data_encoding::BASE64;
use domain::Secret;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue};
use thiserror::Error;

use super::connection::Connection;
use crate::Asked;

/// The head of a hop, as far as a credential is concerned.
#[derive(Debug, Default)]
pub struct Head {
    /// Its fields.
    pub headers: HeaderMap,
    /// What is added to its query, encoded: `name=value`. Apart from the path, which is judged, recorded and printed.
    pub query: Option<Secret>,
}

/// Whether a hop has a credential now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// It has.
    Yes,
    /// The connection has none.
    None,
    /// It is not for this place; the hop goes out without it.
    Elsewhere,
}

/// Why there is no credential where there has to be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CredentialFault {
    #[error("the credential cannot be had now")]
    Unavailable,
    #[error("the credential has a character that cannot stand in its place")]
    Unfit,
}

/// Who has the credentials of connections.
#[async_trait]
pub trait Credentials: Send + Sync {
    /// Attaches the connection's credential if it is for this hop. Whatever stands in its place is replaced.
    async fn attach(&self, connection: &Connection, hop: &Asked, head: &mut Head) -> Result<Attached, CredentialFault>;
}

/// Those that stand in the configuration.
#[derive(Debug, Clone, Copy, Default)]
pub struct StaticCredentials;

#[async_trait]
impl Credentials for StaticCredentials {
    async fn attach(&self, connection: &Connection, hop: &Asked, head: &mut Head) -> Result<Attached, CredentialFault> {
        let Some(credential) = connection.credential() else { return Ok(Attached::None) };
        if !connection.vouches_for(hop) {
            return Ok(Attached::Elsewhere);
        }
        let secret = credential.value.as_ref().ok_or(CredentialFault::Unavailable)?.expose();
        match &credential.kind {
            CredentialKind::Bearer => insert(head, AUTHORIZATION, &[b"Bearer ", secret])?,
            CredentialKind::Header { name, prefix } => {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| CredentialFault::Unfit)?;
                insert(head, name, &[prefix.as_bytes(), secret])?;
            }
            CredentialKind::Basic { username } => {
                let user = username.iter().flat_map(|user| [user.as_bytes(), b":"]);
                let plain = Secret::new(user.chain([secret]).collect::<Vec<_>>().concat());
                insert(head, AUTHORIZATION, &[b"Basic ", BASE64.encode(plain.expose()).as_bytes()])?;
            }
            CredentialKind::Query { parameter } => {
                let pair = format!("{}={}", percent_encoded(parameter.as_bytes()), percent_encoded(secret));
                head.query = Some(Secret::new(pair.into_bytes()));
            }
        }
        Ok(Attached::Yes)
    }
}

fn insert(head: &mut Head, name: HeaderName, parts: &[&[u8]]) -> Result<(), CredentialFault> {
    let mut value = HeaderValue::from_bytes(&parts.concat()).map_err(|_| CredentialFault::Unfit)?;
    // Not printed by whoever prints headers, and not put into a compression table by HTTP/2.
    value.set_sensitive(true);
    head.headers.insert(name, value);
    Ok(())
}

/// Everything but what RFC 3986, 2.3 leaves alone.
pub(super) fn percent_encoded(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            text.push('%');
            text.push_str(&data_encoding::HEXUPPER.encode(&[*byte]));
        }
    }
    text
}
