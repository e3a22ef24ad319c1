//! Digests as text, read strictly: one spelling each.

use config::scheme::Encoding;
use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};

/// The longest digest that there is (SHA-512), in bytes.
pub(super) const DIGEST_BYTES_MAX: usize = 64;

/// Reads `text` as exactly `into.len()` bytes. Padding must be there exactly where the encoding has it; spare bits
/// must be zero; nothing may stand before, between or behind.
pub(super) fn decode(encoding: Encoding, text: &[u8], into: &mut [u8]) -> bool {
    let (alphabet, text) = match encoding {
        Encoding::Hex => (&HEXLOWER_PERMISSIVE, text),
        Encoding::Base64Nopad => (&BASE64_NOPAD, text),
        Encoding::Base64urlNopad => (&BASE64URL_NOPAD, text),
        Encoding::Base64 | Encoding::Base64url => {
            // The padding is checked here and the rest read without any: the padded readers of the library take
            // concatenated texts, which is a second spelling.
            let padding: &[u8] = match into.len() % 3 {
                0 => b"",
                1 => b"==",
                _ => b"=",
            };
            let Some(unpadded) = text.strip_suffix(padding) else { return false };
            (if encoding == Encoding::Base64 { &BASE64_NOPAD } else { &BASE64URL_NOPAD }, unpadded)
        }
    };
    text.len() == alphabet.encode_len(into.len()) && alphabet.decode_mut(text, into).is_ok()
}

/// Reads `text` whatever its length is, up to `bytes_max`; as strictly.
pub(super) fn decode_any(encoding: Encoding, text: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    // Hexadecimal is the longest way to write a byte.
    if text.len() > bytes_max * 2 + 4 {
        return None;
    }
    let digits = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text).len();
    let bytes = if encoding == Encoding::Hex { text.len() / 2 } else { digits * 3 / 4 };
    let mut out = vec![0; bytes];
    (bytes <= bytes_max && decode(encoding, text, &mut out)).then_some(out)
}

/// Writes `bytes` as text.
pub(crate) fn encode(encoding: Encoding, bytes: &[u8]) -> String {
    match encoding {
        Encoding::Hex => HEXLOWER,
        Encoding::Base64 => BASE64,
        Encoding::Base64Nopad => BASE64_NOPAD,
        Encoding::Base64url => BASE64URL,
        Encoding::Base64urlNopad => BASE64URL_NOPAD,
    }
    .encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Encoding; 5] =
        [Encoding::Hex, Encoding::Base64, Encoding::Base64Nopad, Encoding::Base64url, Encoding::Base64urlNopad];

    fn reads<const N: usize>(encoding: Encoding, text: &str) -> bool {
        decode(encoding, text.as_bytes(), &mut [0; N])
    }

    #[test]
    fn lenient_spellings_are_refused() {
        assert!(reads::<4>(Encoding::Hex, "00ffAB1c"));
        for text in ["00ffab1", "00ffab1c0", "00ffab1g", " 00ffab1c", "00ffab1c\n", "0x00ffab", ""] {
            assert!(!reads::<4>(Encoding::Hex, text), "{text:?}");
        }
        assert!(reads::<4>(Encoding::Base64, "AP+rHA=="));
        // Missing, short and surplus padding, spare bits, the other alphabet, white space, padding in the middle.
        for text in ["AP+rHA", "AP+rHA=", "AP+rHA===", "AP+rHB==", "AP-rHA==", "AP+r HA==", "AP+rHA==\n", "AP==+rHA"] {
            assert!(!reads::<4>(Encoding::Base64, text), "{text:?}");
        }
        // Two padded texts in a row are five bytes to a lenient reader.
        assert!(!reads::<5>(Encoding::Base64, "AP8=AP8A"));
        assert!(!reads::<5>(Encoding::Base64, "AP8AAP8="[..4].repeat(2).as_str()));
        assert!(reads::<4>(Encoding::Base64urlNopad, "AP-rHA"));
        assert!(!reads::<4>(Encoding::Base64urlNopad, "AP-rHA=="));
        assert!(!reads::<4>(Encoding::Base64urlNopad, "AP+rHA"));
        assert!(reads::<3>(Encoding::Base64, "AP+r"));
        assert!(!reads::<3>(Encoding::Base64, "AP+r="));
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(bytes in proptest::collection::vec(any::<u8>(), 1..=DIGEST_BYTES_MAX)) {
            for encoding in ALL {
                let mut back = vec![0; bytes.len()];
                let text = encode(encoding, &bytes);
                prop_assert!(decode(encoding, text.as_bytes(), &mut back));
                prop_assert_eq!(&back, &bytes);
                prop_assert_eq!(decode_any(encoding, text.as_bytes(), DIGEST_BYTES_MAX), Some(bytes.clone()));
                prop_assert_eq!(decode_any(encoding, text.as_bytes(), bytes.len() - 1), None);
            }
        }

        #[test]
        fn what_reads_is_the_only_spelling(text in "[A-Za-z0-9+/=_-]{0,48}", len in 1_usize..=32) {
            let mut bytes = vec![0; len];
            for encoding in ALL {
                if let Some(read) = decode_any(encoding, text.as_bytes(), 48) {
                    prop_assert!(encode(encoding, &read).eq_ignore_ascii_case(&text));
                }
                if decode(encoding, text.as_bytes(), &mut bytes) {
                    let canonical = encode(encoding, &bytes);
                    prop_assert!(canonical == text || encoding == Encoding::Hex && canonical.eq_ignore_ascii_case(&text));
                }
            }
        }
    }
}
