//! JSON Schema of both files, for editors: from the same rows that the loader reads by.

use serde_json::{Value, json};

use crate::form::{Settings, object_schema};
use crate::settings::Appliance;
use crate::tenant_file::TenantTable;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Schema of the appliance's file.
pub fn appliance_schema() -> Value {
    titled("tidegate.toml", "Tidegate: the appliance's configuration", object_schema(&Appliance::rows()))
}

/// Schema of a tenant's file.
pub fn tenant_schema() -> Value {
    titled("tenant.toml", "Tidegate: one tenant's configuration", object_schema(&TenantTable::rows()))
}

/// Both, by file.
pub fn schema() -> Value {
    json!({ "tidegate.toml": appliance_schema(), "tenant.toml": tenant_schema() })
}

fn titled(id: &str, title: &str, mut schema: Value) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".into(), DIALECT.into());
        object.insert("$id".into(), format!("https://tidegate.dev/schema/{id}.json").into());
        object.insert("title".into(), title.into());
    }
    schema
}
