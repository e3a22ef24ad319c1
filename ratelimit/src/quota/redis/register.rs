//! The register of the fleet's breakers in the Redis that quota has: one more kind of key, through the same connections.

use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value, cmd};

use crate::ProviderKey;
use crate::breaker::fleet::{Kept, Register, TOO_LONG, VALUE_BYTES_MAX, Written, ttl_ms};
use crate::quota::AskError;

use super::centre::RedisCentre;
use super::fault::Fault;
use super::library::{PREFIX, REVISION};

/// What can be a version: the library has them in seven bytes, and a double holds no more.
const VERSION_MAX: u64 = 1 << 53;

#[async_trait]
impl Register for RedisCentre {
    async fn read(&self, provider: ProviderKey) -> Result<Kept, AskError> {
        let tag = tag(provider);
        let answer = self.call(&tag, command("register_read", &tag, &[REVISION])).await;
        answer.and_then(|answer| kept(&answer).ok_or(Fault::Unreadable)).map_err(Fault::ask_error)
    }

    async fn write(
        &self,
        provider: ProviderKey,
        expected: u64,
        bytes: &[u8],
        ttl: Duration,
    ) -> Result<Written, AskError> {
        if bytes.len() > VALUE_BYTES_MAX {
            return Err(TOO_LONG);
        }
        let mut head = vec![REVISION];
        head.extend_from_slice(&expected.min(VERSION_MAX).to_le_bytes()[..7]);
        head.extend_from_slice(&u32::try_from(ttl_ms(ttl)).unwrap_or(u32::MAX).to_le_bytes());
        let tag = tag(provider);
        let mut command = command("register_write", &tag, &head);
        command.arg(bytes);
        let answer = self.call(&tag, command).await;
        answer.and_then(|answer| written(&answer).ok_or(Fault::Unreadable)).map_err(Fault::ask_error)
    }
}

/// Its hash tag. No application has it: theirs have a colon.
fn tag(provider: ProviderKey) -> String {
    format!("{{q:{:016x}}}", provider.as_u64())
}

fn command(function: &str, tag: &str, head: &[u8]) -> Cmd {
    let mut command = cmd("FCALL");
    command.arg(format!("{PREFIX}{function}")).arg(1).arg(format!("{tag}:breaker")).arg(head);
    command
}

fn written(answer: &Value) -> Option<Written> {
    let Value::Array(parts) = answer else { return None };
    match parts.as_slice() {
        [Value::Int(1), Value::Int(version)] => Some(Written::Done { version: positive(*version)? }),
        [Value::Int(0), rest @ ..] => Some(Written::Newer(kept_of(rest)?)),
        _ => None,
    }
}

fn kept(answer: &Value) -> Option<Kept> {
    let Value::Array(parts) = answer else { return None };
    kept_of(parts)
}

fn kept_of(parts: &[Value]) -> Option<Kept> {
    let [Value::Int(version), Value::Int(now_ms), Value::BulkString(bytes)] = parts else { return None };
    let (version, now_ms) = (u64::try_from(*version).ok()?, u64::try_from(*now_ms).ok()?);
    let is_whole = version <= VERSION_MAX && bytes.len() <= VALUE_BYTES_MAX && (version > 0 || bytes.is_empty());
    is_whole.then(|| Kept { version, bytes: bytes.clone(), now_ms })
}

fn positive(version: i64) -> Option<u64> {
    u64::try_from(version).ok().filter(|version| (1..=VERSION_MAX).contains(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_in_the_form_of_the_others_and_an_answer_that_cannot_be_is_not_read() {
        assert_eq!(tag(ProviderKey::from_u64(0xabc)), "{q:0000000000000abc}");
        let bytes = |length: usize| Value::BulkString(vec![7; length]);
        let good = Value::Array(vec![Value::Int(5), Value::Int(9), bytes(2)]);
        assert_eq!(kept(&good), Some(Kept { version: 5, now_ms: 9, bytes: vec![7; 2] }));
        for wrong in [
            Value::Nil,
            Value::Array(vec![Value::Int(5), Value::Int(9)]),
            Value::Array(vec![Value::Int(-1), Value::Int(9), bytes(0)]),
            Value::Array(vec![Value::Int(0), Value::Int(9), bytes(1)]),
            Value::Array(vec![Value::Int(5), Value::Int(9), bytes(VALUE_BYTES_MAX + 1)]),
        ] {
            assert_eq!(kept(&wrong), None);
        }
        assert_eq!(written(&Value::Array(vec![Value::Int(1), Value::Int(3)])), Some(Written::Done { version: 3 }));
        for wrong in [vec![Value::Int(1), Value::Int(0)], vec![Value::Int(2), Value::Int(3)], vec![Value::Int(0)]] {
            assert_eq!(written(&Value::Array(wrong)), None);
        }
    }
}
