//! The path of a governed call: the connection's base path, and what the caller put behind it.

use thiserror::Error;

use crate::policy::is_unclear;

/// Why a path is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathRefused {
    #[error("what stands behind the connection is no path")]
    Start,
    #[error(
        "the path can be read in more than one way: it has dot segments, `//`, backslashes, or encoded forms of them"
    )]
    Unclear,
    #[error("the query has a character that has to be percent-encoded")]
    Query,
    #[error("the query has the parameter of the credential more than once, or in a form that could be taken for it")]
    Credential,
}

/// Base path and rest, in origin-form. The rest is empty, or begins with `/` or `?`.
///
/// The result is within the base path for every server: nothing in the rest is a step up to any of them.
pub(super) fn join(base: &str, rest: &str) -> Result<Box<str>, PathRefused> {
    let (path, query) = rest.split_once('?').map_or((rest, None), |(path, query)| (path, Some(query)));
    if !path.is_empty() && !path.starts_with('/') {
        return Err(PathRefused::Start);
    }
    let path = match (base, path) {
        ("", "") => "/".to_owned(),
        (base, path) => format!("{base}{path}"),
    };
    if is_unclear(&path) || path.contains('#') {
        return Err(PathRefused::Unclear);
    }
    let Some(query) = query else { return Ok(path.into()) };
    if !query.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'#' | b'\\')) {
        return Err(PathRefused::Query);
    }
    Ok(format!("{path}?{query}").into())
}

/// Whether a query has something that some server takes for this parameter: in other case, with `;` between, with what
/// PHP makes of a name.
pub(super) fn resembles(path_and_query: &str, parameter: &str) -> bool {
    let Some((_, query)) = path_and_query.split_once('?') else { return false };
    let wanted = folded(parameter);
    query.split(['&', ';']).any(|pair| {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        folded(name) == wanted
    })
}

fn folded(name: &str) -> String {
    let bytes = name.as_bytes();
    let (mut at, mut folded) = (0, String::with_capacity(name.len()));
    while let Some(byte) = bytes.get(at) {
        let (byte, length) = match (byte, name.get(at + 1..at + 3)) {
            (b'%', Some(digits)) => match u8::from_str_radix(digits, 16) {
                Ok(decoded) => (decoded, 3),
                Err(_) => (b'%', 1),
            },
            (byte, _) => (*byte, 1),
        };
        at += length;
        match byte {
            // An array of one, to some; the end of the name, to others.
            b'[' | 0 => break,
            b'.' | b' ' | b'+' => folded.push('_'),
            byte => folded.push(char::from(byte.to_ascii_lowercase())),
        }
    }
    folded.trim_start_matches('_').to_owned()
}
