//! Where in a request the proof is.
//!
//! | way in | places, the first of which is asked for |
//! |---|---|
//! | CONNECT, absolute-form | `Proxy-Authorization`: bearer, or basic with the user `grant` or `token` and the proof as password |
//! | `/c/{connection}/…` | `Tidegate-Grant`; where the provider's SDK puts its key |
//!
//! Everything that is found has to be the same proof. An SDK may insist on a key although the grant is in
//! `Tidegate-Grant`: what it puts in its place then is anything that does not look like a grant or token.
//!
//! Nothing of this travels on: `Proxy-Authorization` and `Tidegate-Grant` never do, whatever they hold and whichever way
//! the request came in, and a connection's key slot is emptied before the real credential goes in.
//!
//! Pure functions over header fields; nothing here believes anything.

use std::borrow::Cow;
use std::fmt;

use data_encoding::BASE64;

use super::token::TOKEN_PREFIX;
use super::unproved::Unproved;

/// The header field of governed calls.
pub const GRANT_FIELD: &str = "tidegate-grant";

/// Fields that never travel on.
pub const STRIPPED_FIELDS: [&str; 2] = ["proxy-authorization", GRANT_FIELD];

/// Where a provider's SDK puts its key, as its connector says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot<'s> {
    /// `Authorization: Bearer KEY`
    Bearer,
    /// `Authorization: Basic`, the key as user.
    BasicUser,
    /// `Authorization: Basic`, the key as password.
    BasicPassword,
    /// This header field: the key is its value, or the last word of it, as in `Token KEY`.
    Header(&'s str),
    /// This parameter of the query.
    Query(&'s str),
}

impl<'s> Slot<'s> {
    /// The header field that is emptied before the real credential goes in.
    pub fn field(self) -> Option<&'s str> {
        match self {
            Self::Bearer | Self::BasicUser | Self::BasicPassword => Some("authorization"),
            Self::Header(name) => Some(name),
            Self::Query(_) => None,
        }
    }

    /// The parameter that is emptied; see [`without_parameter`].
    pub fn parameter(self) -> Option<&'s str> {
        match self {
            Self::Query(name) => Some(name),
            Self::Bearer | Self::BasicUser | Self::BasicPassword | Self::Header(_) => None,
        }
    }

    fn key_in(self, value: &[u8]) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Bearer => bearer(value).map(Cow::Borrowed),
            Self::BasicUser => basic(value).map(|(user, _)| Cow::Owned(user)),
            Self::BasicPassword => basic(value).map(|(_, password)| Cow::Owned(password)),
            Self::Header(_) => value.trim_ascii().rsplit(|byte| *byte == b' ').next().map(Cow::Borrowed),
            Self::Query(_) => None,
        }
    }
}

/// In which place the proof was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `Proxy-Authorization`.
    ProxyAuthorization,
    /// `Tidegate-Grant`.
    TidegateGrant,
    /// Where the provider's SDK puts its key.
    Slot,
}

/// A proof as it was presented. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Presented<'r> {
    pub(super) proof: Cow<'r, [u8]>,
    /// Where it was.
    pub place: Place,
}

impl<'r> Presented<'r> {
    /// For who has the proof itself, as a command has.
    pub fn given(proof: &'r [u8]) -> Self {
        Self { proof: Cow::Borrowed(proof), place: Place::TidegateGrant }
    }
}

impl fmt::Debug for Presented<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presented({} bytes in {:?})", self.proof.len(), self.place)
    }
}

/// The proof of a request to the proxy: CONNECT or absolute-form. Fields are names and values as they came.
pub fn of_proxy_request<'r>(fields: impl IntoIterator<Item = (&'r str, &'r [u8])>) -> Result<Presented<'r>, Unproved> {
    let mut found = None;
    for (_, value) in fields.into_iter().filter(|(name, _)| name.eq_ignore_ascii_case(STRIPPED_FIELDS[0])) {
        let proof = match (bearer(value), basic(value)) {
            (Some(token), _) => Cow::Borrowed(token),
            (None, Some((user, password))) if user == b"grant" || user == b"token" => Cow::Owned(password),
            (None, _) => return Err(Unproved::Form),
        };
        add(&mut found, Presented { proof, place: Place::ProxyAuthorization })?;
    }
    found.ok_or(Unproved::Missing)
}

/// The proof of a governed call: fields, the query without its question mark, and where the SDK puts its key.
pub fn of_governed_call<'r>(
    fields: impl IntoIterator<Item = (&'r str, &'r [u8])>,
    query: Option<&'r str>,
    slot: Slot<'_>,
) -> Result<Presented<'r>, Unproved> {
    let mut named = None;
    let mut in_slot = Vec::new();
    for (name, value) in fields {
        if name.eq_ignore_ascii_case(GRANT_FIELD) {
            let proof = Cow::Borrowed(value.trim_ascii());
            add(&mut named, Presented { proof, place: Place::TidegateGrant })?;
        } else if slot.field().is_some_and(|field| name.eq_ignore_ascii_case(field)) {
            in_slot.push(slot.key_in(value));
        }
    }
    if let (Some(parameter), Some(query)) = (slot.parameter(), query) {
        let values = parameters(query).filter(|(name, _)| is_named(name, parameter)).map(|(_, value)| value.as_bytes());
        in_slot.extend(values.map(|value| Some(Cow::Borrowed(value))));
    }
    let is_named = named.is_some();
    for key in in_slot {
        match key {
            // Something for the SDK's sake.
            _ if is_named && !key.as_deref().is_some_and(looks_like_proof) => {}
            Some(proof) => add(&mut named, Presented { proof, place: Place::Slot })?,
            None => return Err(Unproved::Form),
        }
    }
    named.ok_or(Unproved::Missing)
}

fn add<'r>(found: &mut Option<Presented<'r>>, another: Presented<'r>) -> Result<(), Unproved> {
    match found {
        Some(known) if known.proof != another.proof => Err(Unproved::Ambiguous),
        Some(_) => Ok(()),
        None => {
            *found = Some(another);
            Ok(())
        }
    }
}

/// Is it a static token or a JWT, by its looks?
pub(super) fn looks_like_proof(text: &[u8]) -> bool {
    // Every header of a JWT begins with `{"`.
    text.starts_with(TOKEN_PREFIX.as_bytes()) || text.starts_with(b"eyJ")
}

/// `Bearer` and one word (RFC 6750 2.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let word = after_scheme(value, b"bearer")?;
    (!word.is_empty() && !word.contains(&b' ')).then_some(word)
}

/// `Basic` and user and password in base64 (RFC 7617 2).
fn basic(value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut user = BASE64.decode(after_scheme(value, b"basic")?).ok()?;
    let colon = user.iter().position(|byte| *byte == b':')?;
    let password = user.split_off(colon + 1);
    user.pop();
    Some((user, password))
}

/// What follows the scheme, whose letters are of either case, and at least one space.
fn after_scheme<'v>(value: &'v [u8], scheme: &[u8]) -> Option<&'v [u8]> {
    let (start, rest) = value.trim_ascii().split_at_checked(scheme.len())?;
    (start.eq_ignore_ascii_case(scheme) && rest.first() == Some(&b' ')).then(|| rest.trim_ascii_start())
}

fn parameters(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Is that the parameter's name, as any server may read it: percent-encoded or not?
fn is_named(written: &str, name: &str) -> bool {
    let mut rest = written.as_bytes();
    let read = std::iter::from_fn(|| {
        let (byte, behind) = match *rest {
            [] => return None,
            [b'%', high, low, ref behind @ ..] => match (hex(high), hex(low)) {
                (Some(high), Some(low)) => (high << 4 | low, behind),
                _ => (b'%', &rest[1..]),
            },
            [b'+', ref behind @ ..] => (b' ', behind),
            [byte, ref behind @ ..] => (byte, behind),
        };
        rest = behind;
        Some(byte)
    });
    read.eq(name.bytes())
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| digit.try_into().ok())
}

/// A target in origin-form without one parameter, however its name is written: so that no second one stands beside the
/// real credential, and no grant leaves.
pub fn without_parameter<'t>(path_and_query: &'t str, parameter: &str) -> Cow<'t, str> {
    let Some((path, query)) = path_and_query.split_once('?') else { return Cow::Borrowed(path_and_query) };
    let is_it = |pair: &&str| is_named(pair.split_once('=').map_or(*pair, |(name, _)| name), parameter);
    if !query.split('&').any(|pair| is_it(&pair)) {
        return Cow::Borrowed(path_and_query);
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_it(pair)).collect();
    Cow::Owned(if kept.is_empty() { path.to_owned() } else { format!("{path}?{}", kept.join("&")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JWT: &str = "eyJhbGciOiJFZERTQSJ9.e30.c2ln";

    fn basic_value(user: &str, password: &str) -> String {
        format!("Basic {}", BASE64.encode(format!("{user}:{password}").as_bytes()))
    }

    fn proxy(fields: &[(&str, &str)]) -> Result<String, Unproved> {
        let presented = of_proxy_request(fields.iter().map(|(name, value)| (*name, value.as_bytes())))?;
        assert_eq!(presented.place, Place::ProxyAuthorization);
        Ok(String::from_utf8(presented.proof.into_owned()).unwrap())
    }

    fn governed(fields: &[(&str, &str)], query: Option<&str>, slot: Slot<'_>) -> Result<(String, Place), Unproved> {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let presented = of_governed_call(fields, query, slot)?;
        Ok((String::from_utf8(presented.proof.into_owned()).unwrap(), presented.place))
    }

    #[test]
    fn a_proxy_is_told_by_bearer_or_basic() {
        let field = |value: &str| proxy(&[("host", "x"), ("Proxy-Authorization", value)]);
        assert_eq!(field(&format!("Bearer {JWT}")), Ok(JWT.into()));
        assert_eq!(field(&format!("bearer   {JWT} ")), Ok(JWT.into()));
        assert_eq!(field(&basic_value("grant", JWT)), Ok(JWT.into()));
        assert_eq!(field(&basic_value("token", "tgt_a:b")), Ok("tgt_a:b".into()));
        assert_eq!(field(&basic_value("grant", "")), Ok(String::new()), "nobody's, and no token");
        for odd in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer a b",
            JWT,
            &format!("Digest {JWT}"),
            &format!("Bearer\t{JWT}"),
            &format!("Bearer{JWT}"),
            "Basic",
            "Basic !",
            "Basic Z3JhbnQ=",
            "Basic Z3JhbnQ6dA",
            &basic_value("admin", JWT),
            &basic_value(JWT, ""),
            &basic_value("Grant", JWT),
        ] {
            assert_eq!(field(odd), Err(Unproved::Form), "{odd}");
        }
        // Fields that are for somebody else prove nothing here.
        let bearer = format!("Bearer {JWT}");
        assert_eq!(proxy(&[("authorization", &bearer), ("tidegate-grant", JWT)]), Err(Unproved::Missing));
        assert_eq!(proxy(&[]), Err(Unproved::Missing));
    }

    #[test]
    fn two_proofs_have_to_be_one() {
        let (bearer, basic) = (format!("Bearer {JWT}"), basic_value("grant", JWT));
        let name = "proxy-authorization";
        assert_eq!(proxy(&[(name, &bearer), (name, &basic)]), Ok(JWT.into()));
        assert_eq!(proxy(&[(name, &bearer), (name, "Bearer other")]), Err(Unproved::Ambiguous));
        assert_eq!(proxy(&[(name, &bearer), (name, "Digest other")]), Err(Unproved::Form));

        let both = |slot: &str| {
            let fields = [("Tidegate-Grant", JWT), ("Authorization", slot)];
            let reversed = [fields[1], fields[0]];
            let result = governed(&fields, None, Slot::Bearer);
            assert_eq!(governed(&reversed, None, Slot::Bearer), result);
            result
        };
        assert_eq!(both(&bearer), Ok((JWT.into(), Place::TidegateGrant)));
        assert_eq!(both("Bearer tgt_other"), Err(Unproved::Ambiguous));
        assert_eq!(both("Bearer eyJother"), Err(Unproved::Ambiguous));
        for placeholder in ["Bearer unused", "Bearer sk_test_123", "Basic dTpw", ""] {
            assert_eq!(both(placeholder), Ok((JWT.into(), Place::TidegateGrant)), "{placeholder}");
        }
        let twice = [("tidegate-grant", JWT), ("tidegate-grant", "tgt_other")];
        assert_eq!(governed(&twice, None, Slot::Bearer), Err(Unproved::Ambiguous));
    }

    #[test]
    fn an_sdk_s_place_is_the_connector_s() {
        let key = Ok((JWT.to_owned(), Place::Slot));
        let bearer = format!("Bearer {JWT}");
        let all = |slot| {
            let fields = [("authorization", &*bearer), ("x-api-key", "unused"), ("private-token", JWT)];
            governed(&fields, Some("a=1&api_key=tgt_q"), slot)
        };
        assert_eq!(all(Slot::Bearer), key);
        assert_eq!(all(Slot::Header("Private-Token")), key);
        assert_eq!(all(Slot::Header("x-api-key")), Ok(("unused".into(), Place::Slot)));
        assert_eq!(all(Slot::Query("api_key")), Ok(("tgt_q".into(), Place::Slot)));
        assert_eq!(all(Slot::Query("key")), Err(Unproved::Missing));
        assert_eq!(all(Slot::BasicUser), Err(Unproved::Form));
        let one = |value: &str, slot| governed(&[("Authorization", value)], None, slot);
        assert_eq!(one(&basic_value(JWT, ""), Slot::BasicUser), key);
        assert_eq!(one(&basic_value("AC123", JWT), Slot::BasicPassword), key);
        assert_eq!(one(&format!("Token {JWT}"), Slot::Header("authorization")), key);
        assert_eq!(one(&bearer, Slot::Header("x-api-key")), Err(Unproved::Missing));
        // What a proxy is told is not asked for here.
        assert_eq!(governed(&[("proxy-authorization", &bearer)], None, Slot::Bearer), Err(Unproved::Missing));
        let twice = governed(&[], Some("k=tgt_a&k=tgt_b"), Slot::Query("k"));
        assert_eq!(twice, Err(Unproved::Ambiguous));
    }

    #[test]
    fn a_parameter_is_taken_out_however_it_is_written() {
        for (target, left) in [
            ("/a", "/a"),
            ("/a?", "/a?"),
            ("/a?b=1&c", "/a?b=1&c"),
            ("/a?api_key=x", "/a"),
            ("/a?b=1&api_key=x&c=api_key", "/a?b=1&c=api_key"),
            ("/a?api%5Fkey=x&%61pi_key&b", "/a?b"),
            ("/a?api_key2=x&Api_key=y&api%_key=z", "/a?api_key2=x&Api_key=y&api%_key=z"),
            ("/a?b&api_key=?api_key=1", "/a?b"),
        ] {
            assert_eq!(without_parameter(target, "api_key"), left, "{target}");
        }
    }

    #[test]
    fn nothing_prints_a_proof() {
        let presented = Presented::given(JWT.as_bytes());
        assert!(!format!("{presented:?}").contains("eyJ"));
    }
}
