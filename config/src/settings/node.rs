//! `[node]`, `[admin]`, `[tenants]` and `[logging]`: who this is, where its files are, and how it talks to operators.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use domain::NodeId;

use crate::form::{Bytes, Choice, Count, Form, List, Row, Text, address, path, settings, shown, text};
use crate::units::{KIB, MIB};
use crate::variables::OWN_NAME;

/// The least grave line that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// How a line is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, else JSON.
    Auto,
    Text,
    Json,
}

settings! {
    /// Which node of a fleet this is.
    pub struct Node {
        /// Number of the node, unique in the fleet. It is part of every event id.
        id: NodeId = NodeId(1), NodeNumber, restart,
            "One machine needs no other. Two nodes with the same number can mint the same event id.";
    }

    /// Where operators and monitoring reach the appliance.
    pub struct Admin {
        /// Address of `/metrics`, `/healthz` and `/readyz`.
        listen: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 9090)), address(), restart,
            "Loopback: metrics tell how much comes in and what is refused. It changes no state, whoever reaches it.";
        /// Unix socket of everything that changes state.
        socket: PathBuf = "/var/lib/tidegate/tidegate.sock".into(),
            shown(path(), "`tidegate.sock` beside `log.directory`"), restart,
            "It belongs to the process that owns that log, so a second appliance on the machine has its own, and the directory's permissions guard it. At most 107 bytes long.";
    }

    /// Where the tenants' files are, and how much of them is taken.
    pub struct Tenants {
        /// Directory of the tenants' files, `<tenant>.toml` each, and of their secrets, `<tenant>.secrets/`.
        directory: PathBuf = "tenants".into(), path(), restart,
            "Beside the appliance's file.";
        /// Directory in which the last good version of each tenant's file is kept.
        state_directory: PathBuf = "/var/lib/tidegate/state".into(),
            shown(path(), "`state` beside `log.directory`"), restart,
            "A faulty file then costs nothing, not even at a cold start. It holds references, never secrets.";
        /// Environment variables that tenants' files may name as `env:…`. `{TENANT}` stands for the tenant's own id in capitals with `_` for `-`, a `*` at the end for any rest.
        allow_env: Vec<String> = vec![format!("{OWN_NAME}_*")], List(variable_pattern(), 0..=1024), live,
            "Variables that carry the tenant's own name, so that its file cannot read another's secret or the appliance's. The tenant `acme` could name those of a tenant `acme-eu`, and `acme_eu` could all of them: `tidegate check` says where a file does, and a running node lets it. Where tenants write their files themselves, set it to `[]` and use `secret:`.";
        /// Files in the directory.
        files_max: u32 = 200_000, Count(1..=10_000_000), live,
            "Twice the 100,000 tenants that are measured. Above it the rest is not read, and said to be so.";
        /// Size of one tenant's file.
        file_bytes_max: u64 = MIB, Bytes(KIB..=64 * MIB), live,
            "About 8,000 endpoints.";
        /// Endpoints of one tenant.
        endpoints_per_tenant_max: u32 = 10_000, Count(1..=1_000_000), live,
            "One tenant's file must not take the node's memory.";
    }

    /// The appliance's own log lines.
    pub struct Logging {
        /// The least grave line that is written.
        level: LogLevel = LogLevel::Info,
            Choice(&[("error", LogLevel::Error), ("warn", LogLevel::Warn), ("info", LogLevel::Info), ("debug", LogLevel::Debug), ("trace", LogLevel::Trace)]),
            restart, "One line per accepted delivery, and everything that somebody should know.";
        /// How a line is written.
        format: LogFormat = LogFormat::Auto,
            Choice(&[("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)]),
            restart, "Text for eyes, JSON for collectors: on a terminal there are eyes.";
        /// Lines about refused deliveries per second; the rest is only counted.
        refusals_per_second: u32 = 20, Count(0..=100_000), restart,
            "Enough to see what goes wrong; a flood of forged deliveries must not fill the disk: 20/s are at most 1 GiB a day.";
    }
}

/// The number of a node: `Count` of its own, since `NodeId` is no integer.
struct NodeNumber;

impl Form<NodeId> for NodeNumber {
    fn read(
        &self,
        document: &mut crate::document::Document<'_>,
        at: &toml::Spanned<toml::de::DeValue<'_>>,
    ) -> Option<NodeId> {
        Count(0..=u64::from(u16::MAX)).read(document, at).map(NodeId)
    }

    fn show(&self, value: &NodeId) -> String {
        value.0.to_string()
    }

    fn kind(&self) -> String {
        <Count as Form<u16>>::kind(&Count(0..=u64::from(u16::MAX)))
    }

    fn schema(&self) -> serde_json::Value {
        <Count as Form<u16>>::schema(&Count(0..=u64::from(u16::MAX)))
    }

    fn rows(&self) -> Vec<Row> {
        Vec::new()
    }
}

const fn variable_pattern() -> Text<String> {
    text(
        "name of a variable, or its start and *",
        "ACME_*",
        |text| {
            let stem = text.strip_suffix('*').unwrap_or(text).replace(OWN_NAME, "T");
            let plain = stem.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if plain && !text.is_empty() && text.len() <= 255 {
                Ok(text.to_owned())
            } else {
                Err(format!("{text:?} is no name of a variable; write \"ACME_GITHUB\" or \"ACME_*\""))
            }
        },
        String::clone,
    )
}
