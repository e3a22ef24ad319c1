//! What becomes of a request that is made twice, as far as its connector knows.

use super::action::{Method, PathPart, PathTemplate, ReplayClass};
use super::manifest::Manifest;
use super::quota::RequestMatch;

/// Whether an idempotency header covers a request, by the list of those that it covers. Of an entry without methods, and of
/// an empty list, it covers POST and PATCH: other methods need none.
pub(super) fn is_covered(list: &[RequestMatch], method: Method, path: &str) -> bool {
    let by_default = matches!(method, Method::Post | Method::Patch);
    if list.is_empty() {
        return by_default;
    }
    list.iter().any(|one| (by_default || !one.methods.is_empty()) && one.names(method.as_str(), path))
}

impl Manifest {
    /// Whether a repeated request of this method and path behind the base URL, without its query, is told by the
    /// idempotency header.
    pub fn remembers(&self, method: Method, path: &str) -> bool {
        self.idempotency_header.is_some() && is_covered(&self.idempotency_for, method, path)
    }

    /// Whether the provider is known to do such a request twice, though its method is idempotent: the manifest says so, or
    /// declares an action of that method and path that is not idempotent.
    pub fn repeats(&self, method: Method, path: &str) -> bool {
        let is_said = self.repeats.iter().any(|one| one.covers(method.as_str(), path));
        let mut actions = self.actions.iter().filter(|action| action.class != ReplayClass::Idempotent);
        is_said || actions.any(|action| action.request.method == method && is_of(&action.request.path, path))
    }
}

/// Whether a path can be one that a template makes.
fn is_of(template: &PathTemplate, path: &str) -> bool {
    let mut rest = path;
    let mut parts = template.parts().iter().peekable();
    while let Some(part) = parts.next() {
        match part {
            PathPart::Text(text) => match rest.strip_prefix(&**text) {
                Some(behind) => rest = behind,
                None => return false,
            },
            PathPart::Place(_) => {
                // A value ends with its segment, or where the text behind it begins.
                let segment = rest.find('/').unwrap_or(rest.len());
                let end = match parts.peek() {
                    Some(PathPart::Text(text)) if !text.starts_with('/') => {
                        let until = text.split('/').next().unwrap_or_default();
                        rest.get(..segment).and_then(|value| value.find(until)).unwrap_or(segment)
                    }
                    Some(PathPart::Text(_) | PathPart::Place(_)) | None => segment,
                };
                if end == 0 {
                    return false;
                }
                rest = rest.get(end..).unwrap_or_default();
            }
        }
    }
    rest.is_empty() || rest == "/"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_covers_post_and_patch_unless_its_list_names_others() {
        let of = |methods: &[&str], paths: &[&str]| {
            let boxed = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect();
            [RequestMatch { methods: boxed(methods), paths: boxed(paths) }]
        };
        for (list, method, path, expected) in [
            (&[][..], Method::Post, "/x", true),
            (&[], Method::Patch, "/x", true),
            (&[], Method::Put, "/x", false),
            (&of(&[], &["/x"]), Method::Post, "/x", true),
            (&of(&[], &["/x"]), Method::Post, "/x/y", false),
            (&of(&[], &["/x"]), Method::Put, "/x", false),
            (&of(&[], &["/x/"]), Method::Post, "/x/y/z", true),
            (&of(&["PUT"], &["/x"]), Method::Put, "/x", true),
            (&of(&["PUT"], &["/x"]), Method::Post, "/x", false),
        ] {
            assert_eq!(is_covered(list, method, path), expected, "{list:?} {method:?} {path}");
        }
    }

    #[test]
    fn a_path_is_of_the_template_that_could_make_it() {
        for (template, path, expected) in [
            ("/tickets/{id}", "/tickets/7", true),
            ("/tickets/{id}", "/tickets/7/", true),
            ("/tickets/{id}", "/tickets/7/tags", false),
            ("/tickets/{id}", "/tickets/", false),
            ("/tickets/{id}", "/tickets", false),
            ("/a/{b}/c/{d}.json", "/a/1/c/2.json", true),
            ("/a/{b}/c/{d}.json", "/a/1/c/2.xml", false),
            ("/v/{range}:append", "/v/A1:append", true),
            ("/v/{range}:append", "/v/A1", false),
            ("/x(guid'{id}')", "/x(guid'1')", true),
        ] {
            assert_eq!(is_of(&PathTemplate::parse(template).unwrap(), path), expected, "{template} {path}");
        }
    }
}
