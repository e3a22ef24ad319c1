//! Ed25519 keys (RFC 8032), in the forms in which other tools write them.
//!
//! | what | form |
//! |---|---|
//! | public | SPKI PEM (`openssl pkey -pubout`), or `ed25519:` and the `x` of its JWK (RFC 8037) |
//! | private | PKCS#8 PEM (`openssl genpkey -algorithm ed25519`), first or second version |
//!
//! No other algorithm is read, so that no token can pick one.

use std::fmt;

use data_encoding::{BASE64, BASE64URL_NOPAD};
use domain::Secret;
use domain::key_text::{self, ED25519_SPKI as SPKI, TextFault, is_weak_ed25519 as is_weak};
use ring::digest::{SHA256, digest};
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

/// DER before the 32 bytes of a private key in the first version, which every tool reads.
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// Longer than any of the forms with its comments.
const TEXT_BYTES_MAX: usize = 4096;

/// Why a text is no key. It may be a private one in the wrong place: nothing of it is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// Neither of the forms.
    #[error("is neither PEM nor `ed25519:` with 43 characters of base64url")]
    Form,
    /// Another kind of PEM, such as a certificate, or a private key where a public one is meant.
    #[error("is PEM of another kind: a public key is `PUBLIC KEY`, a private one `PRIVATE KEY`")]
    Label,
    /// A key of another algorithm.
    #[error("is no Ed25519 key")]
    Algorithm,
    /// A point with which anybody can sign, such as 32 zero bytes.
    #[error("is a placeholder: with that key, anybody can sign")]
    Weak,
}

impl From<TextFault> for KeyFault {
    fn from(fault: TextFault) -> Self {
        match fault {
            TextFault::Form => Self::Form,
            TextFault::Label => Self::Label,
        }
    }
}

/// A key that signatures are checked with.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Reads either of the forms; white space around it is no matter.
    pub fn parse(text: &[u8]) -> Result<Self, KeyFault> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(KeyFault::Form);
        }
        let text = text.trim_ascii();
        let bytes = if let Some(x) = text.strip_prefix(b"ed25519:") {
            BASE64URL_NOPAD.decode(x).map_err(|_| KeyFault::Form)?.try_into().map_err(|_| KeyFault::Algorithm)?
        } else {
            let der = key_text::pem(text, "PUBLIC KEY")?;
            let key = der.expose().strip_prefix(&SPKI).ok_or(KeyFault::Algorithm)?;
            key.try_into().map_err(|_| KeyFault::Algorithm)?
        };
        if is_weak(bytes) { Err(KeyFault::Weak) } else { Ok(Self(bytes)) }
    }

    /// Is this the signature of that message? RFC 8032 5.1.7, with S below the order of the group.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }

    /// Its JWK thumbprint (RFC 7638, RFC 8037 A.3): what a `kid` may say.
    pub fn thumbprint(&self) -> String {
        let jwk = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{}"}}"#, BASE64URL_NOPAD.encode(&self.0));
        BASE64URL_NOPAD.encode(digest(&SHA256, jwk.as_bytes()).as_ref())
    }

    /// SPKI PEM.
    pub fn to_pem(&self) -> String {
        let der = [&SPKI[..], &self.0].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", BASE64.encode(&der))
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ed25519:{}", BASE64URL_NOPAD.encode(&self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key that grants are signed with: for testing and for whoever issues by the command line. The appliance itself
/// needs none.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// A fresh one, with its PEM.
    ///
    /// # Errors
    /// The operating system gives no randomness.
    pub fn generate() -> Result<(Self, Secret), Unspecified> {
        let mut der = [0; 48];
        der[..16].copy_from_slice(&PKCS8);
        SystemRandom::new().fill(&mut der[16..])?;
        let der = Secret::new(der);
        let pair = Ed25519KeyPair::from_seed_unchecked(&der.expose()[16..]).map_err(|_| Unspecified)?;
        let text = Secret::new(BASE64.encode(der.expose()).into_bytes());
        let pem = [b"-----BEGIN PRIVATE KEY-----\n", text.expose(), b"\n-----END PRIVATE KEY-----\n"].concat();
        Ok((Self(pair), Secret::new(pem)))
    }

    /// Reads PKCS#8 PEM.
    pub fn parse(text: &[u8]) -> Result<Self, KeyFault> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(KeyFault::Form);
        }
        let der = key_text::pem(text.trim_ascii(), "PRIVATE KEY")?;
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.expose()).map(Self).map_err(|_| KeyFault::Algorithm)
    }

    /// The key that checks what this one signs.
    pub fn public(&self) -> PublicKey {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.0.public_key().as_ref());
        PublicKey(bytes)
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.0.sign(message).as_ref());
        bytes
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8037 A.1 and A.2.
    const SEED: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";
    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn rfc_key() -> SigningKey {
        let der = [&PKCS8[..], &BASE64URL_NOPAD.decode(SEED.as_bytes()).unwrap()].concat();
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", BASE64.encode(&der));
        SigningKey::parse(pem.as_bytes()).unwrap()
    }

    #[test]
    fn the_known_answers_of_rfc_8037() {
        let key = rfc_key();
        assert_eq!(key.public().to_string(), format!("ed25519:{X}"));
        assert_eq!(key.public().thumbprint(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
        assert_eq!(BASE64URL_NOPAD.encode(&key.sign(message)), signature);
        let signature = BASE64URL_NOPAD.decode(signature.as_bytes()).unwrap();
        assert!(key.public().verifies(message, &signature));
        assert!(!key.public().verifies(&message[1..], &signature));
        assert!(!key.public().verifies(message, &signature[1..]));
    }

    #[test]
    fn keys_survive_the_forms_they_are_written_in() {
        let (key, pem) = SigningKey::generate().unwrap();
        let public = key.public();
        assert_eq!(SigningKey::parse(pem.expose()).unwrap().public(), public);
        assert_eq!(PublicKey::parse(public.to_pem().as_bytes()), Ok(public));
        assert_eq!(PublicKey::parse(format!("\n {public}\r\n").as_bytes()), Ok(public));
        // As `openssl genpkey -algorithm ed25519` and `openssl pkey -pubout` of OpenSSL 3.0 wrote it.
        let private = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIMpFEKC3T8wWYu2e+63MuicRSt4ddWXGIZFXw4vnk+aL\n-----END PRIVATE KEY-----\n";
        let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA+L7HHlAU8Zviz0MCX4VSY1xRnX0UTSwb2bQPF6Oqh0g=\n-----END PUBLIC KEY-----\n";
        let expected = PublicKey::parse(public.as_bytes()).unwrap();
        assert_eq!(SigningKey::parse(private.as_bytes()).unwrap().public(), expected);
        assert!(!format!("{:?}", SigningKey::parse(private.as_bytes())).contains("MpFEKC3"));
    }

    #[test]
    fn what_is_no_key_is_said_so() {
        let parse = |text: &str| PublicKey::parse(text.as_bytes()).expect_err(text);
        assert_eq!(parse(""), KeyFault::Form);
        assert_eq!(parse(&format!("ed25519:{X}=")), KeyFault::Form);
        // The last character carries two bits that mean nothing: only one way to write them is taken.
        assert_eq!(parse(&format!("ed25519:{}p", &X[..42])), KeyFault::Form);
        assert_eq!(parse(&format!("ed25519:{}", &X[..42])), KeyFault::Form);
        assert_eq!(parse("ed25519:AAAA"), KeyFault::Algorithm);
        assert_eq!(parse("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"), KeyFault::Label);
        assert_eq!(parse("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"), KeyFault::Algorithm);
        assert_eq!(parse("-----BEGIN PUBLIC KEY-----\n!!\n-----END PUBLIC KEY-----"), KeyFault::Form);
        let (_, private) = SigningKey::generate().unwrap();
        assert_eq!(PublicKey::parse(private.expose()), Err(KeyFault::Label));
    }

    #[test]
    fn a_key_with_which_anybody_can_sign_is_refused() {
        // Each of them takes a signature that nobody made, for about every eighth message.
        let points = [
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0100000000000000000000000000000000000000000000000000000000000000",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
            "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
            "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
            "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        ];
        let mut forged = [0; 64];
        forged[0] = 1;
        for point in points {
            let bytes: [u8; 32] = data_encoding::HEXLOWER.decode(point.as_bytes()).unwrap().try_into().unwrap();
            assert!((0..255u8).any(|message| PublicKey(bytes).verifies(&[message], &forged)), "{point} is not weak");
            assert!(is_weak(bytes), "{point}");
            let text = format!("ed25519:{}", BASE64URL_NOPAD.encode(&bytes));
            assert_eq!(PublicKey::parse(text.as_bytes()), Err(KeyFault::Weak));
        }
        assert!(is_weak(
            [0xee, 0xff].into_iter().chain([0xff; 29]).chain([0xff]).collect::<Vec<_>>().try_into().unwrap()
        ));
        assert!(!is_weak(rfc_key().public().0));
    }
}
