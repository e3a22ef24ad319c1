//! The compact form of a JWT (RFC 7515 3.1), taken apart. What its parts say is for whoever asks: nothing is believed here.

use data_encoding::BASE64URL_NOPAD;

/// The three parts of a token, as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compact<'t> {
    pub header: &'t [u8],
    pub payload: &'t [u8],
    pub signature: &'t [u8],
    /// What the signature is over: header, dot and payload.
    pub signed: &'t [u8],
}

impl<'t> Compact<'t> {
    /// Exactly three parts. The caller bounds the length.
    pub fn split(token: &'t [u8]) -> Option<Self> {
        let mut parts = token.split(|byte| *byte == b'.');
        let (header, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
        let signed = &token[..header.len() + 1 + payload.len()];
        parts.next().is_none().then_some(Self { header, payload, signature, signed })
    }
}

/// A part in bytes: base64url without padding, and with nothing in the bits that mean nothing, so that there is one text per
/// token.
pub fn decoded(part: &[u8]) -> Option<Vec<u8>> {
    BASE64URL_NOPAD.decode(part).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_parts_and_no_other_number() {
        let token = Compact::split(b"aa.bbb.c").unwrap();
        assert_eq!((token.header, token.payload, token.signature), (&b"aa"[..], &b"bbb"[..], &b"c"[..]));
        assert_eq!(token.signed, b"aa.bbb");
        assert_eq!(Compact::split(b"..").unwrap().signed, b".");
        for text in ["", "a", "a.b", "a.b.c.", "a.b.c.d"] {
            assert_eq!(Compact::split(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_part_has_one_spelling() {
        assert_eq!(decoded(b"AP-_"), Some(vec![0, 0xff, 0xbf]));
        for text in ["AP+/", "AA==", "AB", "A", "A A", "AAEC\n"] {
            assert_eq!(decoded(text.as_bytes()), None, "{text}");
        }
    }
}
