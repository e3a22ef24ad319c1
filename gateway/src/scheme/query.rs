//! The query of a target, read strictly where a signature is about it.

use super::form;

/// A query that has more than one reading, or too many parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// The path of a target.
pub(super) fn path(target: &[u8]) -> &[u8] {
    &target[..target.iter().position(|byte| *byte == b'?').unwrap_or(target.len())]
}

fn parameters(target: &[u8]) -> Result<Vec<form::Field<'_>>, Unreadable> {
    let query = target.get(path(target).len() + 1..).unwrap_or_default();
    let mut fields = form::fields(query).map_err(|form::Unreadable| Unreadable)?;
    fields.sort();
    Ok(fields)
}

/// The parameters, decoded and sorted by name and value, as `a=1&b=2`. What would then have a second reading is refused: a name
/// with `=` in it, and a name or a value with `&`.
pub(super) fn sorted(target: &[u8]) -> Result<Vec<u8>, Unreadable> {
    let mut out = Vec::new();
    for (name, value) in parameters(target)? {
        if name.iter().any(|byte| matches!(byte, b'&' | b'=')) || value.contains(&b'&') {
            return Err(Unreadable);
        }
        if !out.is_empty() {
            out.push(b'&');
        }
        out.extend_from_slice(&name);
        out.push(b'=');
        out.extend_from_slice(&value);
    }
    Ok(out)
}

/// The same, escaped again by RFC 3986 with capital digits, values of one name joined by commas, and one parameter left out.
pub(super) fn canonical(target: &[u8], without: &str) -> Result<Vec<u8>, Unreadable> {
    let mut out = Vec::new();
    let mut last: Option<Vec<u8>> = None;
    for (name, value) in parameters(target)? {
        if *name == *without.as_bytes() {
            continue;
        }
        if last.as_deref() == Some(&*name) {
            out.push(b',');
        } else {
            if !out.is_empty() {
                out.push(b'&');
            }
            escape(&name, &mut out);
            out.push(b'=');
            last = Some(name.into_owned());
        }
        escape(&value, &mut out);
    }
    Ok(out)
}

fn escape(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02X}").as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(read: Result<Vec<u8>, Unreadable>) -> Result<String, Unreadable> {
        read.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn queries_sort_as_the_providers_sort_them() {
        assert_eq!(text(sorted(b"/x?b=2&a=z&a=%41&c=x+y")), Ok("a=A&a=z&b=2&c=x y".into()));
        assert_eq!(text(sorted(b"/x")), Ok(String::new()));
        assert_eq!(text(sorted(b"/x?")), Ok(String::new()));
        assert_eq!(text(canonical(b"/x?b=2&a=z&jwt=t&a=%41&c=x+y%2f", "jwt")), Ok("a=A,z&b=2&c=x%20y%2F".into()));
        assert_eq!(path(b"/x?y"), b"/x");
        assert_eq!(path(b"/x"), b"/x");
    }

    #[test]
    fn queries_with_two_readings_are_refused() {
        for target in ["/x?a", "/x?a=1&&b=2", "/x?a=%zz"] {
            assert_eq!(sorted(target.as_bytes()), Err(Unreadable), "{target}");
            assert_eq!(canonical(target.as_bytes(), "jwt"), Err(Unreadable), "{target}");
        }
        // Decoded, this would be two parameters.
        assert_eq!(sorted(b"/x?a=1%26b=2"), Err(Unreadable));
        assert_eq!(sorted(b"/x?a%3D1=2"), Err(Unreadable));
        assert_eq!(text(sorted(b"/x?a=1%3D2")), Ok("a=1=2".into()));
        assert_eq!(text(canonical(b"/x?a=1%26b=2", "jwt")), Ok("a=1%26b%3D2".into()));
    }
}
