//! A place in a JSON text: `errors[].extensions.code`.

use std::fmt;

use crate::form::{Text, text};

/// Deeper than any provider's error, and shallow enough for every parser.
const STEPS_MAX: usize = 8;

/// One step down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The member of that name.
    Member(Box<str>),
    /// Any member.
    Any,
    /// Any element.
    Element,
}

/// Steps from the top of a JSON text: names, `*` for any member, `[]` for any element. One step at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Box<[Step]>);

impl JsonPath {
    /// A path of known steps.
    pub fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        Self(steps.into_iter().collect())
    }

    pub fn steps(&self) -> &[Step] {
        &self.0
    }

    /// # Errors
    /// What is wrong with it, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let faulty = || format!("{text:?} is no place in JSON; write such as \"error.code\" or \"errors[].code\"");
        let mut steps = Vec::new();
        for part in text.split('.') {
            let name = part.trim_end_matches("[]");
            let elements = (part.len() - name.len()) / 2;
            let known = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_:".contains(&byte));
            match name {
                "*" => steps.push(Step::Any),
                // Only the text itself can be a list without a name.
                "" if steps.is_empty() && elements > 0 => {}
                _ if known && (1..=64).contains(&name.len()) => steps.push(Step::Member(name.into())),
                _ => return Err(faulty()),
            }
            steps.extend(std::iter::repeat_n(Step::Element, elements));
            if steps.len() > STEPS_MAX {
                return Err(format!("{text:?} has more than {STEPS_MAX} steps"));
            }
        }
        Ok(Self(steps.into()))
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, step) in self.0.iter().enumerate() {
            let dot = if at == 0 { "" } else { "." };
            match step {
                Step::Member(name) => write!(f, "{dot}{name}")?,
                Step::Any => write!(f, "{dot}*")?,
                Step::Element => f.write_str("[]")?,
            }
        }
        Ok(())
    }
}

pub(in crate::connector) const fn json_path() -> Text<JsonPath> {
    text("place in JSON", "errors[].code", JsonPath::parse, JsonPath::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_names_elements_and_stars() {
        for good in ["code", "error.code", "errors[].extensions.code", "[].errorCode", "*[].call_count", "a[][].b"] {
            assert_eq!(JsonPath::parse(good).unwrap().to_string(), good);
        }
        let long = "a.".repeat(8) + "a";
        for bad in ["", ".", "a..b", "a.", "[a]", "a[", "a b", "a.[]", "[]]", "é", "**", long.as_str()] {
            assert!(JsonPath::parse(bad).is_err(), "{bad}");
        }
        assert!(JsonPath::parse(&"a.".repeat(7).add("a")).is_ok());
    }

    use std::ops::Add;
}
