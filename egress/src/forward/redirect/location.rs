//! `Location`, read strictly and against the hop that it came from.
//!
//! A reference is read in the one way in which RFC 3986 and the URL standard agree, and refused where they do not: tabs
//! and backslashes, schemes without their slashes, dots that are encoded, text outside of ASCII.

use outbound::{Authority, Malformed, Scheme, Target};
use thiserror::Error;

use crate::Asked;

/// Longer ones are no place that anybody means.
const BYTES_MAX: usize = 8 << 10;

/// Why a `Location` leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LocationFault {
    #[error("is empty")]
    Empty,
    #[error("is longer than 8 KiB")]
    TooLong,
    #[error("has a character that programs read differently")]
    Character,
    #[error("is neither http nor https, or has no // behind it")]
    Scheme,
    #[error("has dots in its path that some programs take for steps")]
    Dots,
    #[error("is malformed: {0}")]
    Malformed(Malformed),
}

/// The hop that a location leads to, with the method of the one that it came from.
pub(super) fn resolve(from: &Asked, location: &[u8]) -> Result<Asked, LocationFault> {
    if location.len() > BYTES_MAX {
        return Err(LocationFault::TooLong);
    }
    if !location.iter().all(|byte| matches!(byte, b' '..=b'~') && *byte != b'\\') {
        return Err(LocationFault::Character);
    }
    let text = std::str::from_utf8(location).map_err(|_| LocationFault::Character)?;
    // A fragment is for whoever shows the page.
    let text = text.trim_matches(' ').split('#').next().unwrap_or_default();
    if text.is_empty() {
        return Err(LocationFault::Empty);
    }
    let (scheme, authority, written) = place(from, text)?;
    let (path, query) = written.split_once('?').map_or((written.as_str(), None), |(path, query)| (path, Some(query)));
    let mut path_and_query = without_steps(path)?;
    if let Some(query) = query {
        path_and_query.push('?');
        path_and_query.push_str(query);
    }
    // Every client sends a space in this way; those that do not write it send two requests.
    let path_and_query = path_and_query.replace(' ', "%20").into();
    Ok(Asked { way: from.way, method: from.method.clone(), scheme, authority, path_and_query })
}

/// Scheme, authority, path and query; steps are still in the path.
fn place(from: &Asked, text: &str) -> Result<(Scheme, Authority, String), LocationFault> {
    let here = |written: String| Ok((from.scheme, from.authority.clone(), written));
    let current = from.path();
    if text.starts_with("//") {
        return absolute(&format!("{}:{text}", from.scheme.as_str()));
    }
    if text.starts_with('/') {
        return here(text.to_owned());
    }
    if text.starts_with('?') {
        return here(format!("{}{text}", if current.is_empty() { "/" } else { current }));
    }
    // A colon in the first segment makes it a scheme, whatever it is followed by.
    let first = text.split(['/', '?']).next().unwrap_or_default();
    if first.contains(':') {
        return absolute(text);
    }
    let directory = current.rsplit_once('/').map_or("", |(directory, _)| directory);
    here(format!("{directory}/{text}"))
}

fn absolute(text: &str) -> Result<(Scheme, Authority, String), LocationFault> {
    // What stands behind the authority may have spaces; what stands before may not.
    let begin = text.find("://").ok_or(LocationFault::Scheme)? + 3;
    let end = text[begin..].find(['/', '?']).map_or(text.len(), |at| begin + at);
    let (front, rest) = text.split_at(end);
    let fault =
        |fault| if fault == Malformed::Scheme { LocationFault::Scheme } else { LocationFault::Malformed(fault) };
    let target = Target::parse(front).map_err(fault)?;
    let written = if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") };
    Ok((target.scheme, target.authority, written))
}

/// RFC 3986, 5.2.4, over whole segments. Steps are taken where they are written plainly.
fn without_steps(path: &str) -> Result<String, LocationFault> {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment if are_hidden_steps(segment) => return Err(LocationFault::Dots),
            segment => kept.push(segment),
        }
    }
    Ok(format!("/{}", kept.join("/")))
}

/// `%2e%2e`, `..;x` and the like. What else is encoded is the destination's to read.
fn are_hidden_steps(segment: &str) -> bool {
    let dots = segment.split(';').next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
    matches!(dots.as_str(), "." | "..")
}
