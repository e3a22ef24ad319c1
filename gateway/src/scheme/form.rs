//! Forms and query strings, read strictly where a signature is about them.

use std::borrow::Cow;

/// More fields than any provider sends: a body of nothing but separators must not become a sort of millions.
const FIELDS_MAX: usize = 10_000;

/// A form that has more than one reading, or too many fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreadable;

/// Name and value, decoded.
pub(super) type Field<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// The byte that two hexadecimal digits stand for.
pub(super) fn hex_pair(pair: &[u8]) -> Option<u8> {
    let [high, low] = pair else { return None };
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
    Some(digit(*high)? << 4 | digit(*low)?)
}

fn decode(text: &[u8]) -> Result<Cow<'_, [u8]>, Unreadable> {
    if !text.iter().any(|b| matches!(b, b'+' | b'%')) {
        return Ok(Cow::Borrowed(text));
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'+' => out.push(b' '),
            b'%' => {
                out.push(tail.get(..2).and_then(hex_pair).ok_or(Unreadable)?);
                rest = &tail[2..];
            }
            other => out.push(*other),
        }
    }
    Ok(Cow::Owned(out))
}

/// The fields of a form body, decoded, in order. Every field must have its `=`: without that rule `a=b` and `a&b`
/// would be signed alike, since what is signed has no separators.
pub(super) fn fields(body: &[u8]) -> Result<Vec<Field<'_>>, Unreadable> {
    let mut fields = Vec::new();
    if body.is_empty() {
        return Ok(fields);
    }
    for pair in body.split(|b| *b == b'&') {
        let at = pair.iter().position(|b| *b == b'=').ok_or(Unreadable)?;
        if fields.len() == FIELDS_MAX {
            return Err(Unreadable);
        }
        fields.push((decode(&pair[..at])?, decode(&pair[at + 1..])?));
    }
    Ok(fields)
}

/// The same, sorted by name; fields of one name stay in order, or are sorted by value and deduplicated.
pub(super) fn sorted(body: &[u8], unique: bool) -> Result<Vec<Field<'_>>, Unreadable> {
    let mut fields = fields(body)?;
    if unique {
        fields.sort();
        fields.dedup();
    } else {
        fields.sort_by(|a, b| a.0.cmp(&b.0));
    }
    Ok(fields)
}

/// The value of the only field of this name.
pub(super) fn only<'a>(body: &'a [u8], name: &[u8]) -> Result<Option<Cow<'a, [u8]>>, Found> {
    let mut found = None;
    for (field, value) in fields(body).map_err(|Unreadable| Found::Unreadable)? {
        if field.as_ref() == name && found.replace(value).is_some() {
            return Err(Found::Several);
        }
    }
    Ok(found)
}

/// Why there is no one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Several,
    Unreadable,
}

/// The value of the only parameter of this name in a target's query; other parameters may look like anything.
pub(super) fn parameter<'a>(target: &'a [u8], name: &[u8]) -> Result<Option<Cow<'a, [u8]>>, Found> {
    let Some(at) = target.iter().position(|b| *b == b'?') else { return Ok(None) };
    let mut found = None;
    for pair in target[at + 1..].split(|b| *b == b'&') {
        let (key, value) = match pair.iter().position(|b| *b == b'=') {
            Some(at) => (&pair[..at], &pair[at + 1..]),
            None => (pair, &b""[..]),
        };
        if decode(key).is_ok_and(|key| key.as_ref() == name) {
            let value = decode(value).map_err(|Unreadable| Found::Unreadable)?;
            if found.replace(value).is_some() {
                return Err(Found::Several);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(fields: Result<Vec<Field<'_>>, Unreadable>) -> Option<String> {
        let fields = fields.ok()?;
        Some(
            fields
                .iter()
                .map(|(k, v)| String::from_utf8_lossy(&[k, b"=".as_slice(), v, b";"].concat()).into_owned())
                .collect(),
        )
    }

    #[test]
    fn forms_sort_as_the_providers_sort_them() {
        let body = b"b=2&a=%2B1&b=1&c=x+y&b=1";
        assert_eq!(text(sorted(body, true)).unwrap(), "a=+1;b=1;b=2;c=x y;");
        assert_eq!(text(sorted(body, false)).unwrap(), "a=+1;b=2;b=1;b=1;c=x y;");
        assert_eq!(text(sorted(b"", true)).unwrap(), "");
        assert_eq!(text(sorted(b"k=", true)).unwrap(), "k=;");
        // Names sort by their decoded bytes.
        assert_eq!(text(sorted(b"%62=1&a=2", true)).unwrap(), "a=2;b=1;");
    }

    #[test]
    fn forms_with_two_readings_are_refused() {
        for body in ["a", "a=1&b", "a=1&&b=2", "a=1&", "&a=1", "a=%", "a=%4", "a=%zz", "%=1"] {
            assert_eq!(sorted(body.as_bytes(), true), Err(Unreadable), "{body}");
        }
        let many = "a=1&".repeat(FIELDS_MAX - 1) + "a=1";
        assert_eq!(fields(many.as_bytes()).unwrap().len(), FIELDS_MAX);
        assert_eq!(fields((many + "&a=1").as_bytes()), Err(Unreadable));
    }

    #[test]
    fn a_parameter_is_there_once_or_not_at_all() {
        let value = |target: &'static str| parameter(target.as_bytes(), b"x").map(|v| v.map(Cow::into_owned));
        assert_eq!(value("/p"), Ok(None));
        assert_eq!(value("/p?y=1&z"), Ok(None));
        assert_eq!(value("/p?y=%zz&x=a%20b+c"), Ok(Some(b"a b c".to_vec())));
        assert_eq!(value("/p?%78=1"), Ok(Some(b"1".to_vec())));
        assert_eq!(value("/p?x"), Ok(Some(Vec::new())));
        assert_eq!(value("/p?x=1&x=1"), Err(Found::Several));
        assert_eq!(value("/p?x=%"), Err(Found::Unreadable));
    }

    #[test]
    fn a_form_field_is_there_once_or_not_at_all() {
        assert_eq!(only(b"a=1&b=2", b"b").unwrap().as_deref(), Some(&b"2"[..]));
        assert_eq!(only(b"a=1", b"b"), Ok(None));
        assert_eq!(only(b"b=1&b=1", b"b"), Err(Found::Several));
        assert_eq!(only(b"{}", b"b"), Err(Found::Unreadable));
    }
}
