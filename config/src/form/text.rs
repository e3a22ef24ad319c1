//! Values that are written as a string.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;
use serde_json::{Value, json};
use toml::Spanned;
use toml::de::DeValue;

use super::Form;
use crate::document::Document;
use crate::public_url::PublicUrl;
use crate::rate::Rate;

/// Written as a string; `parse` says what is wrong with it.
pub(crate) struct Text<T> {
    what: &'static str,
    example: &'static str,
    parse: fn(&str) -> Result<T, String>,
    show: fn(&T) -> String,
}

pub(crate) const fn text<T>(
    what: &'static str,
    example: &'static str,
    parse: fn(&str) -> Result<T, String>,
    show: fn(&T) -> String,
) -> Text<T> {
    Text { what, example, parse, show }
}

impl<T> Form<T> for Text<T> {
    fn read(&self, document: &mut Document<'_>, at: &Spanned<DeValue<'_>>) -> Option<T> {
        let Some(text) = at.get_ref().as_str() else {
            document.wrong_type(at, &format!("{} as a string, such as \"{}\"", self.what, self.example));
            return None;
        };
        match (self.parse)(text) {
            Ok(value) => Some(value),
            Err(message) => {
                document.fault(at.span(), message);
                None
            }
        }
    }

    fn show(&self, value: &T) -> String {
        format!("\"{}\"", (self.show)(value))
    }

    fn kind(&self) -> String {
        self.what.to_owned()
    }

    fn schema(&self) -> Value {
        json!({ "type": "string", "examples": [self.example] })
    }
}

pub(crate) const fn url() -> Text<PublicUrl> {
    text("URL", "https://hooks.example.com", str::parse, PublicUrl::to_string)
}

pub(crate) const fn address() -> Text<SocketAddr> {
    text(
        "address and port",
        "127.0.0.1:8080",
        |text| {
            text.parse()
                .map_err(|_| format!("{text:?} is no address and port; write \"127.0.0.1:8080\" or \"[::]:8080\""))
        },
        SocketAddr::to_string,
    )
}

/// A network; a bare address stands for itself alone.
pub(crate) const fn network() -> Text<IpNet> {
    text(
        "network or address",
        "10.0.0.0/8",
        |text| match text.parse::<IpNet>() {
            Ok(net) if net.addr() != net.network() => {
                Err(format!("{text:?} has bits set behind its prefix; write \"{}\"", net.trunc()))
            }
            Ok(net) => Ok(net),
            Err(_) => text
                .parse::<IpAddr>()
                .map(IpNet::from)
                .map_err(|_| format!("{text:?} is no network; write \"10.0.0.0/8\", \"2001:db8::/32\" or one address")),
        },
        IpNet::to_string,
    )
}

pub(crate) const fn events_rate() -> Text<Rate> {
    text("rate of events", "100/s burst 200", Rate::parse_events, |rate| rate.show_events())
}

pub(crate) const fn bytes_rate() -> Text<Rate> {
    text("rate of bytes", "10MiB/s burst 50MiB", Rate::parse_bytes, |rate| rate.show_bytes())
}

/// Any path; relative ones are resolved against the directory of the file by the loader.
pub(crate) const fn path() -> Text<PathBuf> {
    text(
        "path",
        "/var/lib/tidegate",
        |text| match text {
            "" => Err("is empty; write a path".into()),
            text if text.contains('\0') => Err("holds a zero byte; write a path".into()),
            text => Ok(text.into()),
        },
        |path| path.display().to_string(),
    )
}
