//! What a document may have, as types: the published schema is made of them, documents are read by that schema, and what
//! was read sound becomes these types. What is written here in doc comments is what authors read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::bounds::{
    BACKOFF_MS_MAX, BACKOFF_MS_MIN, CASES_MAX, DEADLINE_MS_MAX, DEADLINE_MS_MIN, ENDPOINTS_MAX, NODES_MAX,
    TIMEOUT_MS_MAX, TRIES_MAX,
};

/// What to do when something happens: a graph of nodes, and what begins it.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Automation {
    /// For editors; not a part of the automation.
    #[serde(rename = "$schema", default)]
    #[expect(dead_code, reason = "editors read it")]
    pub(super) schema: Option<String>,
    /// Unique among your automations.
    #[schemars(length(min = 1, max = 100))]
    pub(super) name: String,
    /// For people.
    #[schemars(length(max = 2000))]
    #[expect(dead_code, reason = "people read it")]
    pub(super) description: Option<String>,
    /// False: no event begins a run of it, and runs that have begun go on. True where nothing is said.
    pub(super) enabled: Option<bool>,
    /// What begins a run. Without it, it is started by hand only.
    pub(super) trigger: Option<Trigger>,
    /// How long a run may take, from its admission on, with all of its waiting. 7 days where nothing is said.
    #[schemars(range(min = DEADLINE_MS_MIN, max = DEADLINE_MS_MAX))]
    pub(super) deadline_ms: Option<u64>,
    /// The queue that its runs begin in: `bulk` gives way to everything else of yours.
    pub(super) class: Option<Class>,
    /// What is done. A node without `after` follows the one before it in this list.
    #[schemars(length(min = 1, max = NODES_MAX))]
    #[expect(dead_code, reason = "looked at one by one, also where something around them is wrong")]
    pub(super) nodes: Vec<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Class {
    Interactive,
    Bulk,
}

/// Events of one endpoint, or of several.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Trigger {
    /// One endpoint, `wh_…`.
    pub(super) endpoint: Option<String>,
    /// Several of them.
    #[schemars(length(min = 1, max = ENDPOINTS_MAX))]
    pub(super) endpoints: Option<Vec<String>>,
    /// A condition in CEL, over `event`: where it is false, no run begins.
    pub(super) when: Option<String>,
}

/// A node that has to be settled first: `"charge"`, `"decide.yes"`, or both as an object.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum After {
    /// `node`, or `node.case` of a branch.
    Text(String),
    Named(AfterNamed),
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct AfterNamed {
    pub(super) node: String,
    /// Of a branch: only when this case was chosen.
    pub(super) case: Option<String>,
}

/// How often a try that failed for the time being is made again.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Retry {
    /// Tries in all. 5 where nothing is said.
    #[schemars(range(min = 1, max = TRIES_MAX))]
    pub(super) max_attempts: Option<u64>,
    /// Before the second try, and doubled for each one behind it, with jitter. 1,000 where nothing is said.
    #[schemars(range(min = BACKOFF_MS_MIN, max = BACKOFF_MS_MAX))]
    pub(super) backoff_ms: Option<u64>,
    /// The longest pause. 60,000 where nothing is said.
    #[schemars(range(min = BACKOFF_MS_MIN, max = BACKOFF_MS_MAX))]
    pub(super) max_backoff_ms: Option<u64>,
}

/// What a failure of the node means for the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum OnFailure {
    /// The run fails.
    Stop,
    /// The run goes on as if the node had been done, with its failure for an output.
    Continue,
}

#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Case {
    /// Its name, by which other nodes are after it.
    pub(super) case: String,
    /// The condition, in CEL.
    pub(super) when: String,
}

/// Each kind of node, with what all of them have.
macro_rules! nodes {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })+) => { $(
        $(#[$doc])*
        #[derive(Debug, Clone, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(super) struct $name {
            /// Letters, digits, `-` and `_`; unique in its list.
            #[schemars(length(min = 1, max = 64), regex(pattern = r"^[A-Za-z0-9_-]+$"))]
            #[expect(dead_code, reason = "read before its kind is known")]
            pub(super) id: String,
            #[serde(rename = "type")]
            #[expect(dead_code, reason = "read before its kind is known")]
            pub(super) kind: String,
            /// For people.
            #[schemars(length(max = 2000))]
            #[expect(dead_code, reason = "people read it")]
            pub(super) description: Option<String>,
            /// What has to be settled first, in this list of nodes. `[]` is nothing; left out, it is the node before.
            #[schemars(length(max = NODES_MAX))]
            pub(super) after: Option<Vec<After>>,
            /// A condition in CEL: where it is false, the node is skipped, and so is what is only after it.
            pub(super) when: Option<String>,
            $($(#[$field_doc])* pub(super) $field: $type,)*
        }
    )+ };
}

nodes! {
    /// A request to a provider, through a connection.
    HttpRequest {
        /// The connection that it goes through, `conn_…`.
        credential: String,
        /// GET where nothing is said.
        method: Option<Value>,
        /// What stands behind the connection's base URL, or a list of segments of it, each of which is encoded.
        path: Value,
        /// An object of texts, numbers, booleans and lists of these.
        query: Option<Value>,
        /// An object of texts.
        headers: Option<Value>,
        /// Any value.
        body: Option<Value>,
        /// How the body is written: `json` (where nothing is said), `form`, `text` or `base64`.
        encoding: Option<Value>,
        /// Your assertion that doing it twice is doing it once. It decides nothing: a contradiction with what the connector
        /// declares is refused.
        idempotent: Option<bool>,
        /// Your assertion that it changes something at the provider. It decides nothing, as `idempotent`.
        effectful: Option<bool>,
        /// For one try. 30,000 where nothing is said.
        #[schemars(range(min = 1, max = TIMEOUT_MS_MAX))]
        timeout_ms: Option<u64>,
        retry_policy: Option<Retry>,
        on_failure: Option<OnFailure>,
    }

    /// An action that a connector declares: its `type` is `connector.action`, as `stripe.create_charge`.
    Action {
        /// The connection that it goes through, `conn_…`.
        credential: String,
        /// What the action takes, by its schema; `${…}` in it are expressions.
        input: Option<Value>,
        /// Your assertion that doing it twice is doing it once. It decides nothing: a contradiction with what the connector
        /// declares is refused.
        idempotent: Option<bool>,
        /// Your assertion that it changes something at the provider. It decides nothing, as `idempotent`.
        effectful: Option<bool>,
        /// For one try. 30,000 where nothing is said.
        #[schemars(range(min = 1, max = TIMEOUT_MS_MAX))]
        timeout_ms: Option<u64>,
        retry_policy: Option<Retry>,
        on_failure: Option<OnFailure>,
    }

    /// The same with the action by itself: `action: create_charge`.
    Effect {
        /// The action, with or without its connector's name before it.
        #[schemars(length(min = 1, max = 128))]
        action: String,
        /// The connection that it goes through, `conn_…`.
        credential: String,
        /// What the action takes, by its schema; `${…}` in it are expressions.
        input: Option<Value>,
        /// Your assertion that doing it twice is doing it once. It decides nothing: a contradiction with what the connector
        /// declares is refused.
        idempotent: Option<bool>,
        /// Your assertion that it changes something at the provider. It decides nothing, as `idempotent`.
        effectful: Option<bool>,
        /// For one try. 30,000 where nothing is said.
        #[schemars(range(min = 1, max = TIMEOUT_MS_MAX))]
        timeout_ms: Option<u64>,
        retry_policy: Option<Retry>,
        on_failure: Option<OnFailure>,
    }

    /// Chooses the first case whose condition holds, and the case `otherwise` where none does.
    Branch {
        /// In the order in which they are asked.
        #[schemars(length(min = 1, max = CASES_MAX))]
        cases: Vec<Case>,
    }

    /// Waits.
    Delay {
        /// So long: `90s`, `15m`, `2h`, `3d`.
        r#for: Option<String>,
        /// Until a time: RFC 3339 with its offset, or seconds since 1970. One that is past is no delay.
        until: Option<Value>,
        on_failure: Option<OnFailure>,
    }

    /// Makes a value of what is there, for nodes behind it.
    Transform {
        /// Any value; `${…}` in it are expressions.
        value: Value,
        on_failure: Option<OnFailure>,
    }

    /// Nodes of their own under one name: their steps are `outer/inner`.
    Graph {
        /// As those of the automation. Those that are after nothing begin when the graph does.
        #[schemars(length(min = 1, max = NODES_MAX))]
        nodes: Vec<Value>,
    }
}

/// Schemas of the kinds by the names that the published schema has for them.
pub(super) fn kinds() -> BTreeMap<&'static str, schemars::Schema> {
    use schemars::generate::SchemaSettings;
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let of = |make: fn(schemars::SchemaGenerator) -> schemars::Schema| make(settings.clone().into_generator());
    BTreeMap::from([
        ("automation", of(schemars::SchemaGenerator::into_root_schema_for::<Automation>)),
        ("httpRequest", of(schemars::SchemaGenerator::into_root_schema_for::<HttpRequest>)),
        ("action", of(schemars::SchemaGenerator::into_root_schema_for::<Action>)),
        ("effect", of(schemars::SchemaGenerator::into_root_schema_for::<Effect>)),
        ("branch", of(schemars::SchemaGenerator::into_root_schema_for::<Branch>)),
        ("delay", of(schemars::SchemaGenerator::into_root_schema_for::<Delay>)),
        ("transform", of(schemars::SchemaGenerator::into_root_schema_for::<Transform>)),
        ("graph", of(schemars::SchemaGenerator::into_root_schema_for::<Graph>)),
    ])
}
