//! Keys as text, in the forms in which consoles and tools write them.

use data_encoding::BASE64;

use crate::Secret;

/// DER before the 32 bytes of an Ed25519 public key: a sequence, the algorithm 1.3.101.112, a bit string (RFC 8410).
pub const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Why a text is not the PEM that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFault {
    /// It is no PEM of one block.
    Form,
    /// It is PEM of another kind.
    Label,
}

/// What is in the one PEM block of a text, which has this label (RFC 7468). What it is may be secret, and is wiped.
///
/// # Errors
/// The text is not one block of this label.
pub fn pem(text: &[u8], label: &str) -> Result<Secret, TextFault> {
    let text = str::from_utf8(text).map_err(|_| TextFault::Form)?;
    let body = text.strip_prefix("-----BEGIN ").ok_or(TextFault::Form)?;
    let body = body.strip_prefix(label).and_then(|body| body.strip_prefix("-----")).ok_or(TextFault::Label)?;
    let end = format!("-----END {label}-----");
    let body = body.strip_suffix(&end).ok_or(TextFault::Form)?;
    let packed = Secret::new(body.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>());
    BASE64.decode(packed.expose()).map(Secret::new).map_err(|_| TextFault::Form)
}

/// The points of small order, and the other ways to write them: y and its bit-wise neighbours above p. Their signatures
/// need no private key. A file of zeros is one of them.
pub fn is_weak_ed25519(mut key: [u8; 32]) -> bool {
    const ORDER_8: [[u8; 32]; 2] = [
        [
            0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5, 0xdf,
            0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
        ],
        [
            0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a, 0x20,
            0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
        ],
    ];
    // The uppermost bit is the sign of x.
    key[31] &= 0x7f;
    let [lowest, middle @ .., highest] = key;
    let is_zero_or_one = lowest <= 1 && middle == [0; 30] && highest == 0;
    // p - 1, p and p + 1: minus one, and zero and one once more.
    let is_about_p = (0xec..=0xee).contains(&lowest) && middle == [0xff; 30] && highest == 0x7f;
    is_zero_or_one || is_about_p || ORDER_8.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_block_of_the_label_that_was_asked_for() {
        let read = |text: &str| pem(text.as_bytes(), "PUBLIC KEY").map(|der| der.expose().to_vec());
        assert_eq!(read("-----BEGIN PUBLIC KEY-----\nAA\r\nEC\n-----END PUBLIC KEY-----"), Ok(vec![0, 1, 2]));
        assert_eq!(read("-----BEGIN PRIVATE KEY-----\nAAEC\n-----END PRIVATE KEY-----"), Err(TextFault::Label));
        for text in [
            "",
            "AAEC",
            "-----BEGIN PUBLIC KEY-----\nAAEC",
            "-----BEGIN PUBLIC KEY-----\nA*EC\n-----END PUBLIC KEY-----",
            "-----BEGIN PUBLIC KEY-----\nAAEC\n-----END PUBLIC KEY-----\n-----BEGIN PUBLIC KEY-----\nAAEC\n-----END PUBLIC KEY-----",
        ] {
            assert_eq!(read(text), Err(TextFault::Form), "{text}");
        }
    }

    #[test]
    fn an_empty_file_of_zeros_is_weak() {
        assert!(is_weak_ed25519([0; 32]));
        assert!(!is_weak_ed25519([7; 32]));
    }
}
