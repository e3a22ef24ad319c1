//! reqwest through the proxy.

use std::env::var;
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use reqwest::blocking::{Client, ClientBuilder};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Certificate, Proxy};
use serde_json::Value;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let _first = rustls::crypto::ring::default_provider().install_default();
    let (host, other, denied, base) = (var("HOST")?, var("OTHER")?, var("DENIED")?, var("BASE")?);
    let size: usize = var("SIZE")?.parse()?;
    let body: Vec<u8> = (0..size).map(|at| u8::try_from(at * 31 % 256).unwrap_or_default()).collect();
    let client = with(|builder| Ok(builder.proxy(Proxy::all(var("PROXY")?)?)))?;
    let bare = with(|builder| Ok(builder.no_proxy()))?;
    let mut governed = HeaderMap::new();
    governed.insert("authorization", HeaderValue::try_from(format!("Bearer {}", var("GRANT")?))?);
    let json = |client: &Client, url: &str| -> Result<Value> { Ok(client.get(url).send()?.json()?) };

    same("http", &json(&client, &format!("http://{host}/echo?a=b"))?["path"], "/echo?a=b")?;
    same("https", &json(&client, &format!("https://{host}/echo"))?["host"], &*host)?;
    let answer: Value = bare.get(format!("{base}/echo")).headers(governed.clone()).send()?.json()?;
    same("base-url", &answer["headers"]["authorization"], &*format!("Bearer {}", var("KEY")?))?;
    for scheme in ["http", "https"] {
        let came = (0..3).map(|_| json(&client, &format!("{scheme}://{host}/echo"))).collect::<Result<Vec<_>>>()?;
        let one = came.iter().all(|answer| answer["connection"] == came[0]["connection"]);
        same(&format!("keep-alive-{scheme}"), one, true)?;
        let sent: Value = client.put(format!("{scheme}://{host}/echo")).body(body.clone()).send()?.json()?;
        same(&format!("upload-{scheme}"), &sent["sha256"], &*sum(&body))?;
        let down = client.get(format!("{scheme}://{host}/down?bytes={size}")).send()?;
        let want = down.headers()["x-sha256"].to_str()?.to_owned();
        same(&format!("download-{scheme}"), sum(&down.bytes()?), want)?;
        // To another host it takes no proof along in absolute form, and is asked for one.
        let to = if scheme == "http" { &host } else { &other };
        let redirected = json(&client, &format!("{scheme}://{host}/redirect?to={scheme}://{to}/echo"))?;
        same(&format!("redirect-{scheme}"), &redirected["host"], &**to)?;
    }
    let sent: Value = bare.put(format!("{base}/echo")).headers(governed.clone()).body(body.clone()).send()?.json()?;
    same("upload-base-url", &sent["sha256"], &*sum(&body))?;
    let follow = bare.get(format!("{base}/redirect?to=/echo&status=307")).headers(governed);
    let followed: Value = follow.header("Tidegate-Follow-Redirects", "3").send()?.json()?;
    same("redirect-base-url", &followed["path"], "/echo")?;

    let mut lines = BufReader::new(client.get(format!("https://{host}/events")).send()?).lines();
    lines.next().ok_or("no event")??;
    let first = Instant::now();
    for line in lines {
        line?;
    }
    same("events", first.elapsed() > Duration::from_millis(300), true)?;

    let failure = |client: &Client, url: String| match client.get(url).send() {
        Ok(answer) => answer.status().to_string(),
        Err(error) => format!("{error:?}"),
    };
    // What is told of a refused tunnel is the library's own words, without the status.
    same("refused", failure(&client, format!("https://{denied}/")).contains("Tunnel"), true)?;
    let stranger = with(|builder| Ok(builder.proxy(Proxy::all(var("PROXY_ANONYMOUS")?)?)))?;
    same("unknown", failure(&stranger, format!("https://{host}/")).contains("ProxyAuthRequired"), true)?;
    same("unknown-base-url", bare.get(format!("{base}/echo")).send()?.status().as_u16(), 401)?;
    // By the variables, which it heeds where nothing else is said.
    same("environment", &json(&with(Ok)?, &format!("https://{host}/echo"))?["host"], &*host)
}

fn with(change: impl FnOnce(ClientBuilder) -> Result<ClientBuilder>) -> Result<Client> {
    let authority = Certificate::from_pem(&std::fs::read(var("CA")?)?)?;
    let builder = Client::builder().add_root_certificate(authority).timeout(Duration::from_secs(60));
    Ok(change(builder)?.build()?)
}

fn same<H: PartialEq<W> + std::fmt::Debug, W: std::fmt::Debug>(name: &str, have: H, want: W) -> Result<()> {
    if have != want {
        return Err(format!("{name}: {have:?} is not {want:?}").into());
    }
    println!("ok {name}");
    Ok(())
}

fn sum(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
