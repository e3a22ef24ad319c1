//! Tables of settings.

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use super::{Effect, Form, Row, Settings};
use crate::document::Document;

/// A table of settings.
pub(crate) struct Table;

impl<S: Settings> Form<S> for Table {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<S> {
        let Some(table) = at.get_ref().as_table() else {
            document.wrong_type(at, "a table");
            return None;
        };
        Some(S::read(document, table, at.span()))
    }

    fn show(&self, _: &S) -> String {
        String::new()
    }

    fn kind(&self) -> String {
        "table".into()
    }

    fn schema(&self) -> Value {
        object_schema(&S::rows())
    }

    fn rows(&self) -> Vec<Row> {
        S::rows()
    }

    fn restarts(&self, old: &S, new: &S, _: Effect, path: &str, out: &mut Vec<String>) {
        old.restarts(new, path, out);
    }

    fn take_live(&self, old: &mut S, new: S, _: Effect) {
        old.take_live(new);
    }
}

/// JSON Schema of a table with these keys and no others.
pub(crate) fn object_schema(rows: &[Row]) -> Value {
    let mut properties = serde_json::Map::new();
    for row in rows {
        let mut schema = row.schema.clone();
        if let Some(object) = schema.as_object_mut() {
            object.insert("description".into(), row.meaning.clone().into());
            if !row.required && row.rows.is_empty() && row.default != "none" {
                let default = toml::from_str::<serde_json::Map<String, Value>>(&format!("d = {}", row.default));
                if let Some(default) = default.ok().and_then(|mut table| table.remove("d")) {
                    object.insert("default".into(), default);
                }
            }
        }
        properties.insert(row.name.into(), schema);
    }
    let required: Vec<_> = rows.iter().filter(|row| row.required).map(|row| row.name).collect();
    json!({ "type": "object", "additionalProperties": false, "required": required, "properties": properties })
}
