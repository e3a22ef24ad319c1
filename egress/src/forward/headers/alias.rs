//! Names that are read as other names.
//!
//! What hands a request to a program by CGI's way of naming things (RFC 3875, 4.1.18: WSGI, Rack, PHP, `FastCGI` and many
//! more) writes `X-HTTP-Method-Override` as `HTTP_X_HTTP_METHOD_OVERRIDE`, and `X_HTTP_Method-Override` as well; some take
//! every character for `_` that is no letter and no digit. So a list of names holds for whatever may be read as one of
//! them.

use std::borrow::Cow;

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Whether a field's name may be read as another one.
pub(crate) fn is_alias(name: &str) -> bool {
    !name.bytes().all(is_plain)
}

/// What a field's name may be read as, written as such names are.
pub(crate) fn read_as(name: &str) -> Cow<'_, str> {
    if !is_alias(name) {
        return Cow::Borrowed(name);
    }
    name.bytes().map(|byte| if is_plain(byte) { char::from(byte) } else { '-' }).collect()
}

/// Whether two fields' names may be read as the same one, whatever their case.
pub(crate) fn read_alike(one: &str, other: &str) -> bool {
    let read = |byte: u8| if is_plain(byte) { byte.to_ascii_lowercase() } else { b'-' };
    one.len() == other.len() && one.bytes().map(read).eq(other.bytes().map(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_digits_and_hyphens_are_what_they_are() {
        for (name, read, alias) in [
            ("x-http-method", "x-http-method", false),
            ("x_http_method", "x-http-method", true),
            ("x-http.method", "x-http-method", true),
            ("x~http|method", "x-http-method", true),
            ("host", "host", false),
            ("_host", "-host", true),
        ] {
            assert_eq!((&*read_as(name), is_alias(name)), (read, alias), "{name}");
            assert!(read_alike(name, read) && read_alike(read, &name.to_ascii_uppercase()), "{name}");
        }
        assert!(!read_alike("x-key", "x-keys") && !read_alike("x-key", "x1key"));
    }
}
