//! Events as `tidegate events … --json` prints them.

use data_encoding::BASE64;
use serde_json::Value;

/// One exported event.
#[derive(Debug, Clone)]
pub struct Event {
    pub id: String,
    pub execution_id: String,
    pub tenant: String,
    pub endpoint: String,
    pub epoch: u64,
    pub sequence: u64,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The whole line.
    pub json: Value,
}

impl Event {
    pub fn read_lines(text: &str) -> Vec<Self> {
        text.lines().map(|line| Self::read(&serde_json::from_str(line).expect("a JSON object a line"))).collect()
    }

    pub fn read(json: &Value) -> Self {
        let text = |key: &str| json[key].as_str().unwrap_or_else(|| panic!("no {key} in {json}")).to_owned();
        let number = |key: &str| json[key].as_u64().unwrap_or_else(|| panic!("no {key} in {json}"));
        let headers = json["headers"].as_array().map(|all| all.iter().map(pair).collect()).unwrap_or_default();
        let body = json["body"].as_str().map(|text| BASE64.decode(text.as_bytes()).expect("base64"));
        Self {
            id: text("id"),
            execution_id: text("executionId"),
            tenant: text("tenant"),
            endpoint: text("endpoint"),
            epoch: number("epoch"),
            sequence: number("sequence"),
            headers,
            body: body.unwrap_or_default(),
            json: json.clone(),
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }
}

/// A header; a value that is no text comes as `{"base64": …}` and is read as text all the same, lossily.
fn pair(json: &Value) -> (String, String) {
    let text = |at: usize| {
        let raw = || json[at]["base64"].as_str().and_then(|text| BASE64.decode(text.as_bytes()).ok());
        let read = || raw().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        json[at].as_str().map(str::to_owned).or_else(read).unwrap_or_else(|| panic!("an odd header {json}"))
    };
    (text(0), text(1))
}
