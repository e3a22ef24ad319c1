//! The centre that several nodes share: a Redis, 7.0 or later, alone, behind Sentinel, or a Cluster.
//!
//! What is decided is decided by a library of Redis Functions (`redis/lua`), in one call per operation; here is the way
//! there. All that an application has is under one hash tag, so that it is in one slot of a cluster.
//!
//! **Within its budget.** An ask ends when its budget does, connected or not. Nothing is sent a second time: an operation
//! without an answer may have been done, and only its asker knows whether to ask again under the same `seq`.
//!
//! **Never on the side.** Where the library is missing or too old it is loaded, and the ask that found that out is
//! refused. Nothing is granted by anything but the library.
//!
//! **What may be forgotten** by a server that took over or began anew is noticed by the library itself, by the process's
//! `run_id`; what is certainly kept is the operator's part: `min-replicas-to-write 1`, `min-replicas-max-lag 1`,
//! `appendonly yes`, `maxmemory-policy noeviction` (another one is refused). A server that comes back without any data
//! learns what living holders were granted, and cannot know what dead ones spent of windows that go on.
//!
//! **Who may log in** needs `+fcall +function|load +get +set +hget +hmget +hset +hdel +hlen +hgetall +hincrby +hscan
//! +zadd +zrem +zrange +zcard +del +pexpire +time +info +spublish +ssubscribe +sunsubscribe +ping +hello`, in
//! a cluster also `+cluster|slots`, keys `~{q:*` and channels `&{q:*`.

mod centre;
mod cluster;
mod dial;
mod fault;
mod library;
mod link;
mod locate;
mod push;
mod register;
mod reply;
mod settings;
mod tls;
mod wire;

pub use centre::RedisCentre;
pub use dial::{Dial, Stream};
pub use fault::Fault;
pub use library::LIBRARY;
pub use push::{Push, Pushes};
pub use settings::{Address, Credentials, InvalidAddress, RedisSettings, Servers};
pub use tls::{TlsFault, client_config, client_config_of};
