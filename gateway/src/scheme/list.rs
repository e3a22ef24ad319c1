//! Headers that hold several things: `t=1,v1=ab,v1=cd`, `v1,ab v1,cd`, `ab,cd`, `1700000000,ab,cd`.

use config::scheme::ListRule;

use super::fault::DeclarationFault;

/// How one scheme writes its list.
#[derive(Debug)]
pub(super) struct Layout {
    separator: u8,
    assign: u8,
    /// Name of the items that are signatures; without it items have no names.
    key: Option<Box<[u8]>>,
    /// Items of whatever name are signatures.
    any_key: bool,
    /// Names of the first items of a list without names.
    positions: Box<[Box<[u8]>]>,
    pub(super) groups: Option<u8>,
    spaces: bool,
}

impl Layout {
    pub(super) fn compile(rule: &ListRule, faults: &mut Vec<DeclarationFault>) -> Self {
        let mut one = |key: &str, text: &str| {
            if let [byte] = text.as_bytes() {
                return Some(*byte);
            }
            let message = format!("signature.list.{key} must be one ASCII character, and is {text:?}");
            faults.push(DeclarationFault { key: format!("signature.list.{key}"), reads: &[], message });
            None
        };
        let separator = one("separator", &rule.separator);
        let assign = one("assign", rule.assign.as_deref().unwrap_or("="));
        let groups = rule.groups.as_deref().map(|text| one("groups", text));
        let same = |one: Option<u8>, other: Option<u8>| one.is_some() && one == other;
        if rule.key.is_some() && (!rule.positions.is_empty() || same(assign, separator)) {
            let message = "signature.list: items have names by `key` and `assign`, or by `positions`, not both";
            let reads = &["signature.list.separator", "signature.list.assign", "signature.list.positions"];
            faults.push(DeclarationFault { key: "signature.list.key".into(), reads, message: message.into() });
        }
        if groups.is_some_and(|groups| same(groups, separator)) {
            let message = "signature.list: `groups` and `separator` must differ";
            let reads = &["signature.list.separator"];
            faults.push(DeclarationFault { key: "signature.list.groups".into(), reads, message: message.into() });
        }
        let (separator, assign) = (separator.unwrap_or(0), assign.unwrap_or(0));
        let groups = groups.map(Option::unwrap_or_default);
        Self {
            separator,
            assign,
            key: rule.key.as_deref().map(|key| key.as_bytes().into()),
            any_key: rule.key.as_deref() == Some("*"),
            positions: rule.positions.iter().map(|name| name.as_bytes().into()).collect(),
            groups,
            spaces: rule.spaces,
        }
    }

    /// Can a field of this name be asked for?
    pub(super) fn names(&self, field: &[u8]) -> bool {
        match &self.key {
            Some(_) if self.any_key => false,
            Some(key) => key.as_ref() != field,
            None => self.positions.iter().any(|name| name.as_ref() == field),
        }
    }

    /// Have the first items names of their own, or are there whole lists in it?
    pub(super) fn is_framed(&self) -> bool {
        self.groups.is_some() || !self.positions.is_empty()
    }

    /// Writes a list of one signature, with the fields that were asked for. `key`: in place of the list's own. Where
    /// spaces do not count, there is one behind the separator: `t=…, v1=…` is how `WorkOS` writes it, and its library
    /// for Python reads nothing else.
    pub(super) fn write(&self, key: Option<&[u8]>, fields: &[(&[u8], &str)], signature: &str) -> String {
        let mut items = Vec::new();
        for (name, value) in fields {
            match self.key {
                Some(_) => items.push(format!("{}{}{value}", String::from_utf8_lossy(name), char::from(self.assign))),
                None => items.push((*value).to_owned()),
            }
        }
        items.push(match key.or(self.key.as_deref()) {
            Some(key) => format!("{}{}{signature}", String::from_utf8_lossy(key), char::from(self.assign)),
            None => signature.to_owned(),
        });
        let separator = char::from(self.separator);
        items.join(&if self.spaces { format!("{separator} ") } else { separator.to_string() })
    }
}

/// One list, as it came.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'a> {
    layout: &'a Layout,
    text: &'a [u8],
}

/// A field that is meant once is there more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Duplicate;

impl<'a> List<'a> {
    pub(super) fn new(layout: &'a Layout, text: &'a [u8]) -> Self {
        Self { layout, text }
    }

    /// Name and value of every item; items that should have a name and have none are nobody's.
    fn items(self) -> impl Iterator<Item = (Option<&'a [u8]>, &'a [u8])> {
        let layout = self.layout;
        self.text.split(move |b| *b == layout.separator).enumerate().filter_map(move |(at, item)| {
            let item = if layout.spaces { item.trim_ascii() } else { item };
            if layout.key.is_some() {
                let assign = item.iter().position(|b| *b == layout.assign)?;
                Some((Some(&item[..assign]), &item[assign + 1..]))
            } else {
                Some((layout.positions.get(at).map(AsRef::as_ref), item))
            }
        })
    }

    pub(super) fn field(self, name: &[u8]) -> Result<Option<&'a [u8]>, Duplicate> {
        let mut found = None;
        for (item, value) in self.items() {
            if item == Some(name) && found.replace(value).is_some() {
                return Err(Duplicate);
            }
        }
        Ok(found)
    }

    /// `key`: in place of the list's own.
    pub(super) fn signatures(self, key: Option<&'a [u8]>) -> impl Iterator<Item = &'a [u8]> {
        let any = self.layout.any_key;
        let key = key.or(self.layout.key.as_deref());
        self.items().filter(move |(name, _)| any || *name == key).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(rule: &ListRule) -> Layout {
        let mut faults = Vec::new();
        let layout = Layout::compile(rule, &mut faults);
        assert_eq!(faults, []);
        layout
    }

    fn signatures(layout: &Layout, text: &'static str) -> Vec<String> {
        let list = List::new(layout, text.as_bytes());
        list.signatures(None).map(|s| String::from_utf8_lossy(s).into_owned()).collect()
    }

    #[test]
    fn named_items() {
        let stripe = layout(&ListRule { separator: ",".into(), key: Some("v1".into()), ..ListRule::default() });
        let text = "t=12,v1=ab==,v0=xx,v1=cd,junk,=e";
        assert_eq!(signatures(&stripe, text), ["ab==", "cd"]);
        let list = List::new(&stripe, text.as_bytes());
        assert_eq!(list.field(b"t"), Ok(Some(&b"12"[..])));
        assert_eq!(list.field(b"x"), Ok(None));
        assert_eq!(List::new(&stripe, b"t=1,t=1").field(b"t"), Err(Duplicate));
        // Space is not nothing, unless the scheme says so.
        assert_eq!(signatures(&stripe, "t=12, v1=ab"), Vec::<String>::new());
        let roomy = ListRule { separator: ",".into(), key: Some("v1".into()), spaces: true, ..ListRule::default() };
        let roomy = layout(&roomy);
        assert_eq!(signatures(&roomy, "t=12, v1=ab"), ["ab"]);
        assert_eq!(signatures(&roomy, "t=12,v1=ab"), ["ab"]);
        assert_eq!(roomy.write(None, &[(b"t", "12")], "ab"), "t=12, v1=ab");
        assert_eq!(stripe.write(None, &[(b"t", "12")], "ab"), "t=12,v1=ab");
    }

    #[test]
    fn tagged_items() {
        let rule =
            ListRule { separator: " ".into(), assign: Some(",".into()), key: Some("v1".into()), ..ListRule::default() };
        let standard = layout(&rule);
        assert_eq!(signatures(&standard, "v1,ab= v1a,cd v1,ef"), ["ab=", "ef"]);
        assert_eq!(standard.write(None, &[], "ab="), "v1,ab=");
    }

    #[test]
    fn items_of_any_name() {
        let rule =
            ListRule { separator: "&".into(), assign: Some("|".into()), key: Some("*".into()), ..ListRule::default() };
        let pairs = layout(&rule);
        assert_eq!(signatures(&pairs, "public|ab&other|cd&ef"), ["ab", "cd"]);
        assert!(!pairs.names(b"public"));
        // The items of another name, where two algorithms share a list.
        let rule =
            ListRule { separator: " ".into(), assign: Some(",".into()), key: Some("v1".into()), ..ListRule::default() };
        let standard = layout(&rule);
        let list = List::new(&standard, b"v1,ab v1a,cd");
        assert_eq!(list.signatures(Some(b"v1a")).collect::<Vec<_>>(), [b"cd"]);
        assert_eq!(standard.write(Some(b"v1a"), &[], "cd"), "v1a,cd");
    }

    #[test]
    fn items_by_position() {
        let bare = layout(&ListRule { separator: ",".into(), ..ListRule::default() });
        assert_eq!(signatures(&bare, "ab,cd"), ["ab", "cd"]);
        let recurly = layout(&ListRule { separator: ",".into(), positions: vec!["t".into()], ..ListRule::default() });
        assert_eq!(signatures(&recurly, "17,ab,cd"), ["ab", "cd"]);
        assert_eq!(List::new(&recurly, b"17,ab").field(b"t"), Ok(Some(&b"17"[..])));
        assert_eq!(recurly.write(None, &[(b"t", "17")], "ab"), "17,ab");
    }
}
