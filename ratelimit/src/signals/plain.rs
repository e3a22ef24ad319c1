//! A path as a provider reads it: whoever writes `/%67mail/` calls what `/gmail/` calls, and counts the same.

use std::borrow::Cow;

/// Decodes what need not have been encoded (RFC 3986, 6.2.2.2: letters, digits, `-._~`); all else stays.
pub fn path(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut parts = text.split('%');
    plain.extend(parts.next());
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        match byte {
            Some(byte) if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                plain.push(char::from(byte));
                plain.extend(part.get(2..));
            }
            Some(_) | None => {
                plain.push('%');
                plain.push_str(part);
            }
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_need_not_be_encoded_is_decoded() {
        let cases = [
            ("/gmail/v1", "/gmail/v1"),
            ("/%67mail/v1", "/gmail/v1"),
            ("/%67%6D%61%69%6c", "/gmail"),
            ("/a%2Fb", "/a%2Fb"),
            ("/a%20b%7e", "/a%20b~"),
            ("/%", "/%"),
            ("/%6", "/%6"),
            ("/%6g", "/%6g"),
            ("/%2561", "/%2561"),
            ("%41%", "A%"),
            ("/é%61", "/éa"),
            ("/%é61", "/%é61"),
        ];
        for (text, plain) in cases {
            assert_eq!(path(text), plain, "{text}");
        }
    }
}
